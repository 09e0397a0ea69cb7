"""What environments are made of: tool descriptions, call formats, readers of model-written calls. No jax."""
