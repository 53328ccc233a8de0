import torch

stages = {"encode": torch.nn.Linear(16, 16), "decode": torch.nn.Linear(16, 4)}


def watch(name, stage):
    def on_output(module, inputs, output):
        print(f"forward pass has left {name}")
        output.register_hook(on_gradient)

    def on_gradient(grad):
        print(f"backward pass is about to enter {name}")

    stage.register_forward_hook(on_output)


for name, stage in stages.items():
    watch(name, stage)

h = torch.randn(3, 16)
for stage in stages.values():
    h = stage(h)
loss = h.square().mean()
print("--- now backward ---")
loss.backward()
