// SPDX-License-Identifier: Apache-2.0
// Stands in for libtorch_cpu.so while libmoejit_torch.so is linked: nothing but the name is needed.
