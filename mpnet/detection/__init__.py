"""From pictures to network input, and from head tensors to boxes."""
