"""Training: one loop for quantization-aware training, fine-tuning and distillation."""
