"""Natural cotangents that stay small, one file per type: rules return them, maps take them.

They are array types like those of `types/`, but they store no parameters. A type pulls any of them
back by queries of the entries that it stores.
"""
