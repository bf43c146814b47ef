"""Every gradient of the core against the complex step: `python -m minibert.core.gradcheck`."""
