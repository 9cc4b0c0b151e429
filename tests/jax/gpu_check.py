#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks moejit.jax on a GPU and times a step; prints a table, and ends with status 1 if a check fails.

It wants a checkout's docs/, runtime/bindings/python/ and tests/, jax with CUDA, and of a portable build (ninja -C
build/portable moejit moejit_shared moejit_jax): moejit, runtime/bindings/c/libmoejit.so* and
runtime/bindings/jax/libmoejit_jax.so. No network is needed.

  python3 tests/jax/gpu_check.py            # all
  python3 tests/jax/gpu_check.py tests      # the tests of this folder on the GPU
  python3 tests/jax/gpu_check.py replay     # command buffers, replayed with other routing
  python3 tests/jax/gpu_check.py times      # a step of Qwen3-30B-A3B's experts beside jax.lax.ragged_dot, and of four
                                            # of DeepSeek-V3's
  python3 tests/jax/gpu_check.py handlers   # how long the host is in a call
  python3 tests/jax/gpu_check.py exchange   # the same with experts on two GPUs: all-gather beside ragged_all_to_all
  python3 tests/jax/gpu_check.py many       # 1,000 steps of experts on two GPUs, each with other tokens
"""
import ctypes
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/portable"
sys.path[:0] = [str(ROOT / "tests/jax"), str(ROOT / "runtime/bindings/python")]
os.environ.setdefault("MOEJIT_LIBRARY", str(BUILD / "runtime/bindings/c/libmoejit.so"))
os.environ.setdefault("MOEJIT_JAX_LIBRARY", str(BUILD / "runtime/bindings/jax/libmoejit_jax.so"))
os.environ.setdefault("MOEJIT_TOOL", str(BUILD / "moejit"))
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # tests start processes of their own
os.environ["PYTHONPATH"] = os.pathsep.join([sys.path[1], os.environ.get("PYTHONPATH", "")])
GRAPHS = "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL --xla_gpu_graph_min_graph_size=1"
TESTS = ("bits_test", "flax_test", "state_test", "gradients_test", "transforms_test", "refusals_test", "parallel_test", "ragged_test", "maxtext_test",
         "router_test")
TOKENS, STEPS, MANY = 8192, 20, 1000
FEW_TOKENS = 1024  # XLA multiplies each row of ragged_dot by each expert: 32 GiB at a time for all tokens
TRITON = "ragged_dot Triton"  # with jax_ragged_dot_use_gpu_pallas_triton_lowering

failed = []


def check(name, is_right, text=""):
    print(f"{'ok    ' if is_right else 'FAILED'}  {name}  {text}", flush=True)
    if not is_right:
        failed.append(name)


def run_tests():
    for name in TESTS:
        result = unittest.TextTestRunner(verbosity=0).run(unittest.defaultTestLoader.loadTestsFromName(name))
        check(name, result.wasSuccessful(), f"{result.testsRun} run, {len(result.skipped)} skipped")


def run_replay():
    """Runs itself with command buffers of any size."""
    environment = {**os.environ, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {GRAPHS}"}
    told = subprocess.run([sys.executable, __file__, "replay-here"], env=environment, check=False)
    check("replay", told.returncode == 0)


def time_calls():
    """Returns a list of the seconds of each call of a handler, made before moejit.jax registers them: a replayed command
    buffer calls none."""
    import jax
    capsule, seconds = jax.ffi.pycapsule, []
    kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

    def timed(handler):
        if handler.__name__ != "moejit_jax_execute_on_gpu":
            return capsule(handler)
        handler.restype, handler.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

        def call(frame):
            begin = time.perf_counter()
            made = handler(frame)
            seconds.append(time.perf_counter() - begin)
            return made

        timed.kept = kind(call)
        return capsule(timed.kept)

    jax.ffi.pycapsule = timed
    return seconds


def replay_here():
    counts = time_calls()
    from support import differences, experts_of, inputs, jax, jnp, named, of_layer, plan, value_and_grads
    layer, steps = plan("fp8_flow"), 12
    params, x, ids, probs, dy = inputs(32, layer)

    def ids_of(state):
        return (ids + state[0]) % 8

    def step(state, params, x, probs, dy):
        return state + 1, named(*value_and_grads(experts_of(layer), params, x, ids_of(state), probs, dy))

    step = jax.jit(step, donate_argnums=0)  # the state keeps its address, and chooses other experts in each step
    state, results = jnp.zeros(1, jnp.int32), []
    before = 0
    for number in range(steps):
        before = len(counts)
        state, made = step(state, params, x, probs, dy)
        results.append(jax.device_get(made))
        del made
    check("calls of handlers in the last step", len(counts) == before, f"{len(counts)} in {steps} steps; 3 without replays")
    for number in (0, 1, steps - 1):
        wanted = of_layer(layer, params, x, ids_of(jnp.array([number])), probs, dy)
        check(f"bits of step {number}", differences(results[number], wanted) == [],
              str(differences(results[number], wanted)))


def run_handlers():
    """Times handlers in a process of its own, since they are registered once."""
    check("handlers", subprocess.run([sys.executable, __file__, "handlers-here"], check=False).returncode == 0)


def handlers_here():
    seconds = time_calls()
    from support import experts_of, inputs, jax, named, plan, value_and_grads
    for recipe in ("bf16", "fp8_flow"):
        layer = plan(recipe)
        given = inputs(32, layer)
        step = jax.jit(lambda *given: named(*value_and_grads(experts_of(layer), *given)))
        for _ in range(50):
            jax.block_until_ready(step(*given))
        seconds.clear()
        for _ in range(500):
            step(*given)
        jax.block_until_ready(step(*given))
        ordered = sorted(seconds)
        print(f"{recipe:10}{len(seconds) / 501:4.1f} calls a step, {statistics.median(ordered) * 1e6:6.2f} us the median, "
              f"{ordered[len(ordered) * 9 // 10] * 1e6:6.2f} us for nine of ten, a call of ctypes with them", flush=True)


def median_ms(function, *arguments):
    import jax
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(STEPS // 5):
            made = function(*arguments)
        jax.block_until_ready(made)
        times.append((time.perf_counter() - begin) / (STEPS // 5) * 1e3)
    return statistics.median(times)


def ragged(params, x, ids, probs):
    """The experts by jax.lax.ragged_dot over sorted tokens, in bf16."""
    import jax
    import jax.numpy as jnp
    order = jnp.argsort(ids.ravel(), stable=True)
    sizes = jnp.bincount(ids.ravel(), length=params["w1"].shape[0]).astype(jnp.int32)
    rows = x[order // ids.shape[1]]
    gate, up = jnp.split(jax.lax.ragged_dot(rows, params["w1"].transpose(0, 2, 1), sizes), 2, axis=-1)
    activated = jax.nn.silu(gate.astype(jnp.float32)) * up * probs.ravel()[order, None]
    out = jax.lax.ragged_dot(activated.astype(x.dtype), params["w2"].transpose(0, 2, 1), sizes)
    return jnp.zeros(x.shape, jnp.float32).at[order // ids.shape[1]].add(out).astype(x.dtype)


def direct_ms(layer, tokens, given):
    """A step of moejit.Layer: update_weights, forward and backward."""
    import moejit
    direct = moejit.Layer(layer.description).prepare()
    tensors = direct.allocate(tokens=tokens) | dict(given)
    sizes = direct.sizes(tokens)
    saved, workspace = direct.device.allocate(sizes.saved_bytes), direct.device.allocate(sizes.workspace_bytes)

    def step():
        direct.update_weights(tensors)
        direct.forward(tensors, saved=saved, workspace=workspace)
        direct.backward(tensors, saved=saved, workspace=workspace)
        direct.device.synchronize()

    step()
    times = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        step()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def time_steps():
    for example, tokens in (("qwen3-30b-a3b", FEW_TOKENS), ("qwen3-30b-a3b", TOKENS), ("deepseek-v3-slice", TOKENS)):
        time_steps_of(example, tokens)


def time_steps_of(example, tokens):
    from support import experts_of, jax, jnp, mj, named, np, value_and_grads
    base = json.loads((ROOT / f"docs/examples/layers/{example}.json").read_text()) | {"max_tokens": TOKENS}
    del base["splits_alignment"]
    layers = {recipe: mj.plan({**base, "recipe": recipe}) for recipe in ("bf16", "fp8_flow")}
    keys = jax.random.split(jax.random.key(0), 4)
    params = mj.init(keys[0], layers["bf16"])
    x = jax.random.normal(keys[1], (tokens, base["hidden"]), jnp.bfloat16)
    scores = jax.nn.softmax(jax.random.normal(keys[2], (tokens, base["experts"])))
    probs, ids = jax.lax.top_k(scores, base["top_k"])
    given = params, x, ids.astype(jnp.int32), probs, jax.random.normal(keys[3], x.shape, jnp.bfloat16)
    peers = {"ragged_dot": ragged, TRITON: ragged} if tokens <= FEW_TOKENS else {}
    functions = peers | {name: experts_of(layer) for name, layer in layers.items()}
    print(f"{example}\n{f'{tokens} tokens':18}{'step ms':>9}{'Layer ms':>10}{'temporary MiB':>15}{'saved + workspace + weights MiB':>33}{'y error':>9}")
    first = exact = None
    for name, function in functions.items():
        try:
            if function is ragged:
                jax.config.update("jax_ragged_dot_use_gpu_pallas_triton_lowering", name == TRITON)
            step = jax.jit(lambda *given: named(*value_and_grads(function, *given))).lower(*given).compile()
            y = np.asarray(step(*given)["y"], np.float32)
            milliseconds = median_ms(step, *given)
        except Exception as error:  # of any kind: the others must still be timed
            print(f"{name:18}  {type(error).__name__}: {str(error).splitlines()[0][:100]}", flush=True)
            if name in layers:
                failed.append(name)
            continue
        if first is None:
            first, exact = name, y
        error = np.linalg.norm(y - exact) / np.linalg.norm(exact)
        temporary, direct, blocks = step.memory_analysis().temp_size_in_bytes / 2 ** 20, "", ""
        if name in layers:
            names = dict(zip(("topk_ids", "topk_probs", "x", "dy"), (given[2], given[3], given[1], given[4]))) | params
            direct = f"{direct_ms(layers[name], tokens, names):.3f}"
            structs = [layers[name].struct(block, tokens, "backward") for block in
                       ("saved", "workspace", "quantized", "quantized_colwise")]
            blocks = f"{sum(struct.size for struct in structs) / 2 ** 20:.0f}"
            # Both round to bf16; fp8 codes have 3 bits of mantissa, and three products of them follow each other.
            check(f"error of {name} beside {first}", error < {"bf16": 2 ** -7, "fp8_flow": 0.1}[name], f"{error:.4f}")
        print(f"{name:18}{milliseconds:9.3f}{direct:>10}{temporary:15.0f}{blocks:>33}{error:9.4f}", flush=True)


def time_exchanges():
    from support import jax, jnp, mj, named, np, value_and_grads
    from jax.sharding import AxisType, NamedSharding, PartitionSpec
    if len(jax.devices()) < 2:
        print("exchange: skipped, needs two GPUs", flush=True)
        return
    base = json.loads((ROOT / "docs/examples/layers/qwen3-30b-a3b.json").read_text())
    mesh, split = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,)), PartitionSpec("d")
    random = np.random.default_rng(0)
    ids = random.random((TOKENS, 128)).argsort(1)[:, :8].astype(np.int32)
    probs = random.random((TOKENS, 8), np.float32) / 4
    x, dy = (random.standard_normal((TOKENS, 2048), np.float32).astype(jnp.bfloat16) for _ in "xy")
    for recipe in ("bf16", "fp8_flow"):
        layer, found = mj.plan({**base, "recipe": recipe, "local_experts": 64, "max_tokens": TOKENS}), {}
        params = {name: jnp.concatenate([array, array[::-1]]) for name, array in mj.init(jax.random.key(0), layer).items()}
        given = jax.device_put((params, x, ids, probs, dy), NamedSharding(mesh, split))
        for how in ("gather", "ragged"):
            function = jax.shard_map(functools.partial(mj.expert_parallel, layer=layer, axis="d", how=how), mesh=mesh,
                                     in_specs=split, out_specs=split)
            step = jax.jit(lambda *given, function=function: named(*value_and_grads(function, *given))).lower(*given).compile()
            found[how] = jax.device_get(step(*given))
            print(f"{recipe:10}{how:8}{median_ms(step, *given):9.3f} ms of two GPUs", flush=True)
        for name, wanted in found["gather"].items():
            got, wanted = (np.asarray(array, np.float32) for array in (found["ragged"][name], wanted))
            error = np.linalg.norm(got - wanted) / np.linalg.norm(wanted)
            # Rows of both are the same; sums of two devices have one addition, and one rounding to bf16 or none.
            check(f"{name} of ragged beside gather, {recipe}", error < 2 ** -8, f"{error:.5f}")


def run_many_steps():
    """Steps one behind the other without a wait of the host: the bits of the last one are those of one device."""
    from support import differences, experts_of, inputs, jax, jnp, mj, named, plan, value_and_grads
    from jax.sharding import AxisType, NamedSharding, PartitionSpec
    if len(jax.devices()) < 2:
        print("many: skipped, needs two GPUs", flush=True)
        return
    mesh, split = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,)), PartitionSpec("d")
    one_device, share = plan("fp8_flow"), plan("fp8_flow", local_experts=4)
    given = inputs(32, one_device)
    params, x, ids, probs, dy = jax.device_put(given, NamedSharding(mesh, split))
    function = jax.shard_map(functools.partial(mj.expert_parallel, layer=share, axis="d", how="ragged"), mesh=mesh,
                             in_specs=split, out_specs=split)

    @jax.jit
    def step(number, x, dx):
        made = named(*value_and_grads(function, params, x, (ids + number) % 8, probs, dy))
        return made, x + 0 * dx  # each step needs the one before

    made, moved = step(0, x, jnp.zeros_like(x))
    begin = time.perf_counter()
    for number in range(1, MANY):
        made, moved = step(number, moved, made["dx"])
    got = jax.device_get(made)
    seconds = time.perf_counter() - begin
    last = (given[2] + MANY - 1) % 8
    wanted = jax.device_get(named(*value_and_grads(experts_of(one_device), *given[:2], last, *given[3:])))
    check(f"{MANY} steps", differences(got, wanted) == [], f"{seconds:.1f} s, {differences(got, wanted)}")


PARTS = {"tests": run_tests, "replay": run_replay, "handlers": run_handlers, "times": time_steps, "exchange": time_exchanges, "many": run_many_steps}


def main(wanted):
    here = {"replay-here": replay_here, "handlers-here": handlers_here}
    if wanted and wanted[0] in here:
        here[wanted[0]]()
        return
    import jax
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}, {len(jax.devices())} devices", flush=True)
    if jax.default_backend() != "gpu":
        sys.exit("gpu_check.py: jax has no GPU here")
    for name in wanted or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.exit(1 if failed else 0)
