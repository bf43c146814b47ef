"""Check every gradient of the core by the complex step: `python -m minibert.core.gradcheck`."""
