"""Pure tensor maths of compression: knows no model, no module and no device policy; never modifies its inputs."""
