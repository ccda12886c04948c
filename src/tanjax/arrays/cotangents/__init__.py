"""Natural cotangents that stay small: what rules return and maps take, one file per type.

They are array types like those of `types/`, but arise by themselves: nobody stores parameters in
them. A type pulls any of them back by asking only for what it stores.
"""
