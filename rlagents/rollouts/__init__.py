"""From tasks to batches: chat templates, tool workers, the rollout loop, collation.

Import from the modules. Worker processes import this package too, so it must load nothing, jax least of all.
"""
