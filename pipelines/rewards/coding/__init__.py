"""Whether a model-written program passes its tests, and the sandbox it runs in."""
