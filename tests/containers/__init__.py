"""What is shipped, in containers. `make test-containers` runs these; they need Docker with Compose.

Images have the names in compose.yaml, or in its variables. `.ci/with-docker` makes them where no
registry answers.
"""
