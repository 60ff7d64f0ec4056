# SPDX-License-Identifier: Apache-2.0
"""Unisono: collective communication that explains itself. `import unisono.torch` registers backend "unisono" for CPU tensors."""
__version__ = "0.1.0"
