# SPDX-License-Identifier: Apache-2.0
"""What the ranks of fsdp_test.py run. Each case returns plain tensors, numbers and text."""
import copy
import io
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoints
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
import transformers
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from support import DEVICE, E, H, I, K, ROOT, TOKENS
from moejit.torch import Experts, convert
from moejit.torch.fsdp import enable_fp8_all_gather
from moejit.torch.devices import target_of
from moejit.torch.layers import call_text
from moejit.torch.plans import plan_of

sys.path.insert(0, str(ROOT / "tests" / "fixtures" / "hugging_face"))
import make_checkpoints

transformers.logging.set_verbosity_error()

_ALL_GATHER = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"


class Block(torch.nn.Module):
    """A router, which is no part of moejit, and its experts."""

    def __init__(self, device, **options):
        super().__init__()
        self.router = torch.nn.Linear(H, E, bias=False, dtype=torch.bfloat16, device=device)
        self.experts = Experts(options.pop("experts", E), H, I, K, max_tokens=64, device=device, **options)

    def forward(self, x):
        probs, ids = self.router(x).float().softmax(-1).topk(K)
        return x + self.experts(x, ids, probs)


def build(device, gather="bf16", **options):
    """Two blocks, sharded one by one; of `gather` "none" and "fp8-unsharded" not at all."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(Block(device, **options), Block(device, **options))
    return shard(model, gather)


def shard(model, gather, **options):
    if gather == "none":
        return model
    if gather.startswith("fp8"):
        enable_fp8_all_gather(model)
    if gather == "fp8-unsharded":
        return model
    for block in model:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def batch(device, step=0):
    """This rank's tokens."""
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    return torch.randn(TOKENS, H, generator=generator).to(torch.bfloat16).to(device)


def full(tensor):
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().cpu()


def loss_of(y):
    return y.float().square().mean()


class CountedGathers:
    """Counts the bytes that this rank sends in all-gathers of FSDP while it is open."""

    def __enter__(self):
        self.bytes = 0
        self._real = real = getattr(dist, _ALL_GATHER)

        def counted(output, given, *arguments, **options):
            self.bytes += given.numel() * given.element_size()
            return real(output, given, *arguments, **options)

        setattr(dist, _ALL_GATHER, counted)
        return self

    def __exit__(self, *_):
        setattr(dist, _ALL_GATHER, self._real)


def train(model, device, steps=2):
    """[y and all gradients of each step], and the bytes that this rank sent to gather weights."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    results = []
    with CountedGathers() as gathers:
        for step in range(steps):
            y = model(batch(device, step))
            loss_of(y).backward()
            results += [full(y)] + [full(parameter.grad) for parameter in model.parameters()]
            optimizer.step()
            optimizer.zero_grad()
    return {"results": results, "bytes": gathers.bytes}


def training(device):
    """Every way to keep the same weights on two ranks."""
    made = {"ddp": train(DistributedDataParallel(build(device, "none")), device)}
    for recipe in ("bf16", "fp8_flow"):
        made["fsdp " + recipe] = train(build(device, recipe=recipe), device)
    made["fp8"] = train(build(device, "fp8"), device)
    made["ddp bf16"] = train(DistributedDataParallel(build(device, "none", recipe="bf16")), device)
    # Each rank has scales of its own tokens: rank 0 must not give others its state.
    made["ddp fp8_delayed"] = train(DistributedDataParallel(build(device, "none", recipe="fp8_delayed"),
                                                            broadcast_buffers=False), device, 3)
    made["fsdp fp8_delayed"] = train(build(device, recipe="fp8_delayed"), device, 3)
    for gather in ("bf16", "fp8"):
        options = {"recompute": "moe_expert", "bias": True, "gate_up_layout": "interleaved"}
        made["options " + gather] = train(build(device, gather, **options), device)
    return made


def precision(device):
    """Parameters in float32 that are gathered in bf16, with gradients that are reduced in float32."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
    made = {}
    for gather in ("bf16", "fp8"):
        model = build(device, "none").float()
        made[gather] = train(shard(model, gather, mp_policy=policy), device)
    return made


def memory(device):
    """What autograd keeps between forward and backward, and what FSDP leaves of the gathered weights."""
    made = {}
    for gather in ("none", "bf16", "fp8"):
        model = build(device, gather)
        kept = []

        def keep(tensor):
            kept.append(tensor.numel() * tensor.element_size() if type(tensor) is torch.Tensor else 0)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            y = model[0](batch(device))
        blocks = sum(bytes_ == kept_bytes(model[0].experts) for bytes_ in kept)
        loss_of(y).backward()
        made[gather] = blocks
    return made


def kept_bytes(experts):
    # The tokens of the first block want no gradient.
    layer = call_text(experts.description, target_of(DEVICE), ("dprobs", "dw1", "dw2"), "bf16")
    return plan_of(layer).quantized_colwise.bytes


def recomputed(device):
    """Activation checkpointing around a sharded block."""
    made = {}
    for name in ("plain", "checkpointed"):
        model = build(device, "fp8")
        run = model if name == "plain" else lambda x: checkpoint(model, x, use_reentrant=False)
        y = run(batch(device))
        loss_of(y).backward()
        made[name] = [full(y)] + [full(parameter.grad) for parameter in model.parameters()]
    return made


def compiled(device):
    """Blocks that are graphs of their own, whose hooks gather the weights."""
    made = {}
    for name, wrap in (("plain", lambda block: block), ("checkpointed", checkpoint_wrapper)):
        torch.manual_seed(0)
        blocks = [Block(device) for _ in range(2)]
        for block in blocks:
            block.experts = wrap(block.experts)
        model = shard(torch.nn.Sequential(*blocks), "fp8")
        for block in model:
            block.compile(fullgraph=True, backend="aot_eager")
        made[name] = train(model, device)["results"]
    return made


def state_dicts(device):
    """A sharded model's state dict, and models that load it in each way there is."""
    model = build(device, "fp8")
    train(model, device, steps=1)
    state = model.state_dict()
    made = {"types": sorted({f"{type(value).__name__} of {type(value.to_local()).__name__}" for value in state.values()}),
            "names": list(state), "plain names": list(build(device, "none").state_dict())}
    with torch.no_grad():
        made["want"] = [full(model(batch(device, 5)))] + [full(value) for value in state.values()]

    def outcome(other):
        with torch.no_grad(), CountedGathers() as gathers:
            y = other(batch(device, 5))
        return {"got": [full(y)] + [full(value) for value in other.state_dict().values()], "bytes": gathers.bytes}

    made["bytes"] = outcome(model)["bytes"]
    torch.manual_seed(1)
    for assign in (False, True):
        for is_warm in (False, True):
            other = build(device, "fp8")
            torch.nn.init.zeros_(other[0].experts.down_proj)
            if is_warm:
                with torch.no_grad():
                    other(batch(device))
            other.load_state_dict(copy.deepcopy(state), assign=assign)
            made[f"load assign={assign} warm={is_warm}"] = outcome(other)
    other = build(device, "fp8")
    torch.nn.init.zeros_(other[0].experts.down_proj)
    set_model_state_dict(other, get_model_state_dict(model))
    made["set_model_state_dict"] = outcome(other)
    folder = [tempfile.mkdtemp()] if dist.get_rank() == 0 else [None]
    dist.broadcast_object_list(folder)
    checkpoints.save({"model": get_model_state_dict(model)}, checkpoint_id=folder[0])
    other = build(device, "fp8")
    torch.nn.init.zeros_(other[0].experts.down_proj)
    target = {"model": get_model_state_dict(other)}
    checkpoints.load(target, checkpoint_id=folder[0])
    set_model_state_dict(other, target["model"])
    made["distributed checkpoint"] = outcome(other)
    saved = io.BytesIO()
    torch.save(build(device, "fp8-unsharded").state_dict(), saved)
    saved.seek(0)
    made["unsharded types"] = sorted({type(value).__name__ for value in torch.load(saved, weights_only=True).values()})
    dist.barrier()
    return made


def meta(device):
    """A model that is sharded before it has memory."""
    model = build("meta", "fp8")
    model.to_empty(device=device)
    source = build(device)
    for parameter, other in zip(model.parameters(), source.parameters()):
        with torch.no_grad():
            parameter.copy_(other)
    return {"got": train(model, device), "want": train(source, device)}


def refusals(device):
    """{case: the error's text}"""
    made = {}

    def refuse(name, function):
        try:
            function()
            made[name] = "no error"
        except (RuntimeError, NotImplementedError) as error:
            made[name] = str(error)

    refuse("bf16", lambda: enable_fp8_all_gather(build(device, "none", recipe="bf16")))
    refuse("scales", lambda: enable_fp8_all_gather(build(device, "none", recipe="fp8_delayed")))
    refuse("nothing", lambda: enable_fp8_all_gather(torch.nn.Linear(4, 4)))
    refuse("late", lambda: enable_fp8_all_gather(build(device)))
    refuse("main_grad", lambda: enable_fp8_all_gather(build(device, "none", fuse_wgrad_accumulation=True)))
    refuse("uneven", lambda: build(device, "fp8", experts=7)(batch(device)))
    by_columns = shard(build(device, "none"), "fp8",
                       shard_placement_fn=lambda parameter: Shard(1) if parameter.dim() == 3 else Shard(0))
    refuse("columns", lambda: by_columns(batch(device)))
    for names in (["down_proj"], ["gate_up_proj", "down_proj"]):
        replaced = build(device, "fp8-unsharded")
        for name in names:
            weight = getattr(replaced[0].experts, name)
            setattr(replaced[0].experts, name, torch.nn.Parameter(torch.zeros_like(weight.plain)))
        shard(replaced, "bf16")
        refuse(f"replaced {len(names)}", lambda: replaced(batch(device)))
    model = build(device, "fp8")
    model[0].experts.register_forward_pre_hook(lambda module, _: refuse("values", lambda: module.down_proj * 2))
    model(batch(device))
    return made


def asked_again(device):
    """What one rank sends where FSDP asks for one weight several times, and for the other after it has changed."""
    experts = build(device, "fp8")[0].experts

    def ask(name):
        parameter = getattr(experts, name)
        sent, _ = parameter.to_local().fsdp_pre_all_gather(parameter.device_mesh, parameter.shape, None, experts, None)
        return [tensor.cpu().clone() for tensor in sent]

    made = {"down": ask("down_proj"), "gate_up": [ask("gate_up_proj") for _ in range(3)]}
    with torch.no_grad():
        experts.down_proj.mul_(2)
    made["doubled"] = ask("down_proj")
    return made


def transformers_model(device):
    """gpt-oss, whose weights are transposed and interleaved, converted."""
    made = {}
    for gather in ("bf16", "fp8"):
        torch.manual_seed(0)
        model = convert(make_checkpoints.make_model("gpt_oss", 8, 64, 32).to(device), max_tokens=64)
        if gather == "fp8":
            made["names"] = enable_fp8_all_gather(model)
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model)
        tokens = torch.arange(16, device=device)[None] % 16
        with CountedGathers() as gathers:
            logits = model(tokens).logits
            loss_of(logits).backward()
        made[gather] = {"results": [full(logits)] + [full(parameter.grad) for parameter in model.parameters()],
                        "bytes": gathers.bytes}
    return made


def replicated(device):
    """Two replicas of one shard each: HSDP."""
    mesh = init_device_mesh(device.type, (2, 1), mesh_dim_names=("replicate", "shard"))
    return {gather: train(shard(build(device, "none"), gather, mesh=mesh), device) for gather in ("bf16", "fp8")}


def everything(device):
    """{case: what it returned}, of one rank."""
    cases = (training, precision, memory, recomputed, compiled, state_dicts, meta, refusals, asked_again, transformers_model,
             replicated)
    return {case.__name__: case(device) for case in cases}
