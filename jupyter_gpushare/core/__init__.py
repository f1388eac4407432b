"""The scheduler: arrays in, decisions out. `decide` is the only entry for the broker and the simulator."""
