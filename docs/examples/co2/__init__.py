"""The parts of the Gaussian-process example: the record, the model, two covariances, the report."""
