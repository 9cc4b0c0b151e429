# SPDX-License-Identifier: Apache-2.0
"""Gradients of Megatron's experts on moejit, and what its DDP, its optimizers and their checkpoints make of them."""
import copy
import functools
import pathlib
import unittest
from unittest import mock

import megatron_device
import torch
from megatron_device import OnCpu
from support import assert_same_bits, told
from torch.utils.checkpoint import checkpoint

if megatron_device.IS_THERE:
    import megatron_case as case
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
    from megatron_case import experts_of, rows


def gradients_of(experts, *calls):
    """[the gradients of weights] behind calls of forward and backward."""
    for x, sizes, probs in calls:
        experts(x, sizes, probs)[0].float().square().sum().backward()
    return [parameter.grad for parameter in experts.parameters()]


def ddp_of(module, **fields):
    wrapped = DistributedDataParallel(module.config, DistributedDataParallelConfig(
        grad_reduce_in_fp32=True, use_distributed_optimizer=True, overlap_grad_reduce=False, **fields), module)
    wrapped.zero_grad_buffer()
    return wrapped


def optimizer_of(wrapped):
    return get_megatron_optimizer(OptimizerConfig(
        optimizer="adam", lr=0.01, bf16=True, weight_decay=0.0, clip_grad=0.0, adam_eps=1e-8,
        use_distributed_optimizer=True), [wrapped])


class CallsBackwardDw(torch.autograd.Function):
    """Stands in front of experts, as newer releases have it for overlap_dispatch_backward_with_experts_wgrad."""

    @staticmethod
    def forward(ctx, experts, x):
        ctx.experts = experts
        return x.view_as(x)

    @staticmethod
    def backward(ctx, dx):
        ctx.experts.backward_dw()
        return None, dx


class Gradients(megatron_device.OnOneRank):

    def test_backward_dw_computes_the_gradients_of_weights(self):
        want = gradients_of(experts_of(), rows(), rows())
        experts, calls = experts_of(delay_wgrad_compute=True), []
        experts.register_wgrad_accumulation_and_reduce_hooks(lambda: calls.append(1))
        self.assertEqual(gradients_of(experts, rows(), rows()), [None, None])
        for _ in range(3):  # the third time there is nothing to do
            experts.backward_dw()
        self.assertEqual(len(calls), 2)
        assert_same_bits(self, [parameter.grad for parameter in experts.parameters()], want)
        self.assertTrue(all(parameter.skip_backward_post_hook for parameter in experts.parameters()))
        self.assertIn("without delay_wgrad_compute",
                      told(lambda: experts_of().register_wgrad_accumulation_and_reduce_hooks(None)))

    def test_backward_dw_may_be_called_within_backward(self):
        want = gradients_of(experts_of(), rows())
        config = case.config_of()
        config.overlap_dispatch_backward_with_experts_wgrad = True  # of newer releases
        experts, (x, sizes, probs) = case.ours("bf16", config).experts, rows()
        experts(CallsBackwardDw.apply(experts, x), sizes, probs)[0].float().square().sum().backward()
        assert_same_bits(self, [parameter.grad for parameter in experts.parameters()], want)

    def test_a_checkpoint_gives_the_same_bits(self):
        found = []
        for run in (lambda function, *given: function(*given), functools.partial(checkpoint, use_reentrant=False),
                    functools.partial(checkpoint, use_reentrant=True)):
            experts, (x, sizes, probs) = experts_of("fp8_flow"), rows()
            y, _ = run(experts, x, sizes, probs)
            y.float().square().sum().backward()
            found.append([y.detach(), x.grad, probs.grad, *(parameter.grad for parameter in experts.parameters())])
        assert_same_bits(self, found[1], found[0])
        assert_same_bits(self, found[2], found[0])

    def main_grads_of(self, layer):
        """[main_grad of each parameter] of experts without DDP."""
        plain = copy.deepcopy(layer.experts)
        for parameter in plain.parameters():
            parameter.main_grad = torch.zeros_like(parameter, dtype=torch.float32)
        gradients_of(plain, rows(), rows())
        for _ in range(2):
            plain.backward_dw()
        return [parameter.main_grad for parameter in plain.parameters()]

    def test_ddp_sums_gradients_behind_backward_dw(self):
        layer = case.ours("bf16", case.config_of(gradient_accumulation_fusion=True, delay_wgrad_compute=True))
        want = self.main_grads_of(layer)
        with OnCpu():
            wrapped = ddp_of(layer, delay_wgrad_compute=True)
            gradients_of(layer.experts, rows(), rows())
            self.assertFalse(any(parameter.main_grad.any() for parameter in layer.experts.parameters()))
            for _ in range(2):
                layer.experts.backward_dw()
            wrapped.finish_grad_sync()
        for parameter in layer.experts.parameters():
            self.assertIsNone(parameter.grad)  # DDP's hooks have run
        assert_same_bits(self, [parameter.main_grad for parameter in layer.experts.parameters()], want)

    def test_ddp_adds_up_main_gradients_and_the_optimizer_uses_them(self):
        layer = case.ours("bf16", case.config_of(gradient_accumulation_fusion=True))
        want = self.main_grads_of(layer)
        before = [parameter.detach().float() for parameter in layer.experts.parameters()]
        with OnCpu():
            wrapped = ddp_of(layer)
            gradients_of(layer.experts, rows(), rows())
            wrapped.finish_grad_sync()
            parameters = list(layer.experts.parameters())
            main = [parameter.main_grad.clone() for parameter in parameters]
            self.assertTrue(optimizer_of(wrapped).step()[0])
        self.assertEqual([parameter.grad for parameter in parameters], [None, None])
        assert_same_bits(self, main, want)
        for parameter, gradient, weight in zip(parameters, main, before):  # the first step of Adam
            self.assertTrue(torch.allclose(parameter.float(), weight - 0.01 * gradient / (gradient.abs() + 1e-8),
                                           rtol=0.01, atol=1e-4))

    def test_missing_main_gradients_are_told(self):
        experts = experts_of(gradient_accumulation_fusion=True)
        self.assertIn("linear_fc1.weight has no main_grad", told(lambda: experts(*rows())))
        delayed = experts_of(gradient_accumulation_fusion=True, delay_wgrad_compute=True)
        gradients_of(delayed, rows())
        self.assertIn("linear_fc1.weight has no main_grad", told(delayed.backward_dw))
        for dtype, parameter in zip((torch.float32, torch.bfloat16), experts.parameters()):
            parameter.main_grad = torch.zeros_like(parameter, dtype=dtype)
        self.assertIn("linear_fc2.weight.main_grad is bfloat16, other", told(lambda: experts(*rows())))

    def test_main_gradients_in_bf16_get_one_rounding(self):
        experts = experts_of(gradient_accumulation_fusion=True)
        sums = []
        for dtype in (torch.float32, torch.bfloat16):
            for parameter in experts.parameters():
                parameter.main_grad = torch.zeros_like(parameter, dtype=dtype)
            gradients_of(experts, rows())
            sums.append([parameter.main_grad.bfloat16() for parameter in experts.parameters()])
        assert_same_bits(self, sums[1], sums[0])

    def test_marks_for_ddp_and_optimizers_survive_a_move(self):
        experts = experts_of(add_bias_linear=True).to_empty(device="meta")
        for parameter in experts.parameters():
            self.assertTrue(parameter.allreduce and parameter.tensor_model_parallel)


class Optimizers(megatron_device.OnOneRank):

    def trained(self, spec, step):
        """(layer, optimizer) behind a step with gradients of its own."""
        layer = case.layer_of(spec, case.config_of())
        wrapped = ddp_of(layer)
        optimizer = optimizer_of(wrapped)
        x, sizes, probs = rows()
        used = sizes.sum()  # SequentialMLP takes no others
        layer.experts(x[:used], sizes, probs[:used])[0].float().pow(2 + step).sum().backward()
        layer.router.weight.main_grad.fill_(1)
        wrapped.finish_grad_sync()
        optimizer.step()
        return layer, optimizer

    def state_dict_of(self, layer, optimizer, is_loading):
        metadata = {"distrib_optim_sharding_type": "fully_reshardable",
                    "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
        model = {}
        for name in ("experts", "router"):
            model.update(getattr(layer, name).sharded_state_dict(f"{name}.", (), metadata))
        return {"optimizer": optimizer.sharded_state_dict(model, is_loading=is_loading, metadata=metadata)}

    def states_of(self, layer, optimizer):
        """[float32 parameters, first and second moments], each as weights_of()."""
        of_one, = optimizer.chained_optimizers

        def state(name, parameter):
            found = of_one._get_main_param_and_optimizer_states(parameter)[name]
            return found.detach().clone().view(parameter.shape)
        return [case.weights_of(layer.experts, functools.partial(state, name))
                for name in ("param", "exp_avg", "exp_avg_sq")]

    def test_states_that_can_be_resharded_are_interchangeable(self):
        load = DistributedOptimizer._set_main_param_and_optimizer_states

        def load_with_step(optimizer, parameter, tensors):  # torch's Adam has it among the states; Megatron forgets it
            load(optimizer, parameter, {"step": torch.tensor(1.0), **tensors})
        specs = {"moejit": case.convert_spec(case.SEQUENTIAL, "bf16"), "sequential": case.SEQUENTIAL}
        patch = mock.patch.object(DistributedOptimizer, "_set_main_param_and_optimizer_states", load_with_step)
        with OnCpu(), patch:
            for one, other in (("moejit", "sequential"), ("sequential", "moejit")):
                saved, loaded = self.trained(specs[one], 0), self.trained(specs[other], 1)
                folder = pathlib.Path(self.folder.name) / one
                folder.mkdir()
                dist_checkpointing.save(self.state_dict_of(*saved, is_loading=False), str(folder))
                loaded[1].load_state_dict(dist_checkpointing.load(self.state_dict_of(*loaded, is_loading=True),
                                                                  str(folder))["optimizer"])
                for want, got in zip(self.states_of(*saved), self.states_of(*loaded), strict=True):
                    assert_same_bits(self, [torch.stack(each) for each in got], [torch.stack(each) for each in want])


if __name__ == "__main__":
    unittest.main()
