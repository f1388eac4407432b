"""Who gets which devices: ours, which asks the core, and the policies it is compared with, one module per engine."""
