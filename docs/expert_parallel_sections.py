# SPDX-License-Identifier: Apache-2.0
"""A section of docs/performance.md from results of tests/bench/ranks_bench.py."""
from math import comb

from performance_text import bytes_text, gpu_text, table, time_text

ROW_BYTES = 7168 + 4 * 56  # of dispatch: e4m3 and a scale for 128 values
SUM_BYTES = 2 * 7168       # of combine: bf16


def other_ranks(ranks, experts=256, top_k=8):
    """To how many other ranks a token's row goes in the mean, if its experts are drawn uniformly and differ."""
    own = experts // ranks
    return (ranks - 1) * (1 - comb(experts - own, top_k) / comb(experts, top_k))


def rows_to_the_first(ranks, skew, top_k=8):
    """How many rows of the others' go to rank 0 for each token of a rank, whose experts are chosen `skew` times as often."""
    return (ranks - 1) * (1 - (1 - skew / (skew + ranks - 1)) ** top_k)


def floors(result, ranks, tokens, skew=1):
    """The least time of dispatch and of combine at the rate of the wire in the same run, in microseconds.

    With a skew it is the busiest link's, from and to rank 0.
    """
    rates = [wire["push_bytes_per_second"] for wire in result.get("wire", []) if wire["ranks"] == ranks]
    if not rates:
        return None, None
    rows = tokens * (other_ranks(ranks) if skew == 1 else rows_to_the_first(ranks, skew))
    return rows * ROW_BYTES / rates[0] * 1e6, rows * SUM_BYTES / rates[0] * 1e6


def exchange_row(result, line):
    nccl = next((each for each in result.get("nccl", [])
                 if (each["ranks"], each["tokens"]) == (line["ranks"], line["tokens"]) and line["skew"] == 1), {})
    dispatch, combine = floors(result, line["ranks"], line["tokens"], line["skew"])
    return {
        "ranks": str(line["ranks"]),
        "tokens": f"{line['tokens']}{'' if line['skew'] == 1 else ', skewed'}",
        "dispatch": f"{line['dispatch_us']:.0f}",
        "of `dy`": f"{line['dispatch_grad_us']:.0f}",
        "wire of rows": f"{dispatch:.0f}" if dispatch else "",
        "NCCL: rows": f"{nccl['dispatch_payload_us']:.0f}" if nccl else "",
        "NCCL: eager dispatch": f"{nccl['dispatch_eager_us']:.0f}" if nccl else "",
        "combine": f"{line['combine_us']:.0f}",
        "with `dprobs`": f"{line['combine_grad_us']:.0f}",
        "wire of sums": f"{combine:.0f}" if combine else "",
        "NCCL: sums": f"{nccl['combine_payload_us']:.0f}" if nccl else "",
        "NCCL: eager combine": f"{nccl['combine_eager_us']:.0f}" if nccl else "",
    }


def step_row(line):
    is_alone = line["ranks"] == 1
    step = line["step_hot_us"] if is_alone else line["forward_us"] + line["backward_us"]
    sent = sum(kernel.get("sent_bytes", kernel.get("wire_bytes", 0)) for kernel in line["kernels"])
    # Without the wait for slower ranks: what the kernels that exchange take on the rank that waits least.
    exchange = 0 if is_alone else line["exchange_us"]
    return {
        "ranks": str(line["ranks"]),
        "experts": str(line["experts"]),
        "step": time_text(step),
        "exchange": time_text(exchange) if exchange else "",
        "share of the step": f"{100 * exchange / step:.0f} %" if exchange else "",
        "sent by a rank": bytes_text(int(sent)) if sent else "",
    }


def test_row(line):
    return {
        "suite": f"`{line['name']}`" + (f", {line['ranks']} ranks" if "ranks" in line else ""),
        "passed": str(line.get("passed", 0)),
        "failed": str(line.get("failed", 0)),
        "for more GPUs": str(line["skipped"]) if line.get("skipped") else "",
        "time": f"{line['seconds']:.0f} s",
    }


def sections(result):
    """How dispatch, combine and steps cost with the number of ranks."""
    wires = [f"{each['push_bytes_per_second'] * 1e-9:.0f} GB/s with {each['ranks']} ranks (copy engines: "
             f"{each['copy_bytes_per_second'] * 1e-9:.0f})" for each in result.get("wire", [])]
    paragraphs = [
        "### Expert parallelism",
        f"{result['gpu']['count']} of {gpu_text(result['gpu'])}, {result['date'][:10]}. hidden 7168, 8 of 256 experts, drawn "
        "uniformly; medians of the slowest rank in us. Dispatch goes from bf16 tokens to permuted, padded rows of e4m3, "
        "combine from the experts' rows to sums at home. To all others at once a GPU "
        f"sends {', '.join(wires)}. `wire` is the time of the bytes at that rate, with each row sent once to a rank. NCCL's rows "
        "and sums are an all-to-all of all choices, whose counts the host knows. Eager is what frameworks do around it, "
        "without quantizing and pad rows. Skewed: the experts of rank 0 are chosen three times as often, and `wire` is the "
        "time of its link.",
        f"```sh\n{result['command_line']}\n```",
        table([exchange_row(result, line) for line in result.get("exchange", [])]),
        "![Time of dispatch and combine by ranks](performance/ranks.svg)",
    ]
    if result.get("steps"):
        paragraphs += [
            "Steps, forward and backward, of layers with intermediate 2048 and 4096 tokens a rank. Random routing is skewed, so "
            "that ranks have different numbers of rows: a step lasts as long as on the slowest one. The exchange is "
            "timed on the rank that waits least.",
            table([step_row(line) for line in result["steps"]])]
    if result.get("tests"):
        paragraphs += ["Tests, bit for bit beside one rank with all tokens, and of ranks that are silent, stopped and killed:",
                       table([test_row(line) for line in result["tests"]])]
    return ["\n\n".join(paragraphs)]


SECTIONS = {"expert_parallel": sections}
