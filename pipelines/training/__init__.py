"""Everything that runs inside a stage process; the only place that may import torch or TRL at the top."""
