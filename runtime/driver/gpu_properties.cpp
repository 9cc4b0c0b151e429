// SPDX-License-Identifier: Apache-2.0
#include "runtime/driver/gpu_properties.h"

#include "runtime/device.h"
#include "runtime/driver/driver_api.h"

#include <array>
#include <fmt/core.h>

namespace moejit::runtime {
namespace {

Result<int32_t> attribute(const Context& context, CUdevice_attribute which) {
  int value = 0;
  MOEJIT_TRY_DRIVER(context.api(), Stage::kLoad, device_get_attribute,
                    (&value, which, context.device()));
  return value;
}

// Returns the ordinal of the context's GPU in this process.
Result<int32_t> ordinal_of(const Context& context) {
  int count = 0;
  MOEJIT_TRY_DRIVER(context.api(), Stage::kLoad, device_get_count, (&count));
  for (int32_t ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    MOEJIT_TRY_DRIVER(context.api(), Stage::kLoad, device_get, (&device, ordinal));
    if (device == context.device()) return ordinal;
  }
  return fail(Stage::kLoad, ErrorCode::kNoDevice,
              "the GPU of the current context is none that this process sees");
}

Result<GpuFacts> facts_of(const Context& context) {
  MOEJIT_TRY_ASSIGN(const int32_t ordinal, ordinal_of(context));
  MOEJIT_TRY_ASSIGN(const int32_t domain, attribute(context, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID));
  MOEJIT_TRY_ASSIGN(const int32_t bus, attribute(context, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID));
  MOEJIT_TRY_ASSIGN(const int32_t device, attribute(context, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
  return GpuFacts{.ordinal = ordinal,
                  .pci_bus_id = fmt::format("{:08x}:{:02x}:{:02x}.0", domain, bus, device),
                  .cuda_version = cuda_version_text(context.api().version)};
}

Result<compiler::ComputeCapability> capability_of(const Context& context) {
  compiler::ComputeCapability capability;
  MOEJIT_TRY_ASSIGN(capability.major,
                    attribute(context, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  MOEJIT_TRY_ASSIGN(capability.minor,
                    attribute(context, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  return capability;
}

// Returns "8.0 (A100, A30), ...".
std::string known_capabilities() {
  std::string text;
  for (const compiler::Architecture& known : compiler::architectures()) {
    const compiler::ComputeCapability capability = known.capabilities.front();
    text += fmt::format("{}{}.{} ({})", text.empty() ? "" : ", ", capability.major,
                        capability.minor, known.gpus);
  }
  return text;
}

// Returns a fact that plans can do without; 0 if the driver does not know it.
int64_t known(const Context& context, CUdevice_attribute which) {
  return attribute(context, which).value_or(0);
}

compiler::GpuIdentity identity_of(const Context& context, const GpuProperties& properties) {
  constexpr int64_t kKilohertzInMegahertz = 1000;
  return {.name = properties.name,
          .sm_count = properties.sm_count,
          .l2_bytes = known(context, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
          .memory_bus_bits = known(context, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
          .memory_megahertz =
              known(context, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) / kKilohertzInMegahertz,
          .most_megahertz = known(context, CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / kKilohertzInMegahertz};
}

}  // namespace

Result<GpuProperties> gpu_properties(const Context& context) {
  std::array<char, 256> name{};
  MOEJIT_TRY_DRIVER(context.api(), Stage::kLoad, device_get_name,
                    (name.data(), static_cast<int>(name.size()), context.device()));
  MOEJIT_TRY_ASSIGN(const compiler::ComputeCapability capability, capability_of(context));
  const compiler::Architecture* const known = compiler::find_architecture(capability);
  if (known == nullptr)
    return fail(
        Stage::kLoad, ErrorCode::kUnsupported,
        fmt::format("the GPU {} has compute capability {}.{}, wanted one of {}", name.data(),
                    capability.major, capability.minor, known_capabilities()),
        "open the simulator instead: moejit_device_open_simulator(), in C++ open_simulator()");
  GpuProperties properties{.name = name.data(), .capability = capability, .target = known->target};
  MOEJIT_TRY_ASSIGN(properties.sm_count,
                    attribute(context, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  MOEJIT_TRY_ASSIGN(properties.most_shared_bytes,
                    attribute(context, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  MOEJIT_TRY_ASSIGN(properties.facts, facts_of(context));
  properties.facts.identity = identity_of(context, properties);
  return properties;
}

namespace {

Result<bool> can_reach(const DriverApi& api, CUdevice from, CUdevice to) {
  if (from == to) return true;
  if (api.device_can_access_peer == nullptr) return false;
  int can_access = 0;
  MOEJIT_TRY_DRIVER(api, Stage::kLoad, device_can_access_peer, (&can_access, from, to));
  return can_access != 0;
}

// Returns the ordinals of the other GPUs that one reaches: "1, 2", or "none".
std::string peers_text(const std::vector<bool>& reached, std::size_t own) {
  std::string text;
  for (std::size_t to = 0; to < reached.size(); ++to)
    if (to != own && reached[to]) text += fmt::format("{}{}", text.empty() ? "" : ", ", to);
  return text.empty() ? "none" : text;
}

}  // namespace

Result<std::vector<std::vector<bool>>> gpu_links() {
  MOEJIT_TRY_ASSIGN(const DriverApi* const api, driver_api());
  int count = 0;
  MOEJIT_TRY_DRIVER((*api), Stage::kLoad, device_get_count, (&count));
  std::vector<CUdevice> gpus(static_cast<std::size_t>(count));
  for (int ordinal = 0; ordinal < count; ++ordinal)
    MOEJIT_TRY_DRIVER((*api), Stage::kLoad, device_get,
                      (&gpus[static_cast<std::size_t>(ordinal)], ordinal));
  std::vector<std::vector<bool>> links;
  for (const CUdevice from : gpus) {
    std::vector<bool>& reached = links.emplace_back();
    for (const CUdevice to : gpus) {
      MOEJIT_TRY_ASSIGN(const bool reaches, can_reach(*api, from, to));
      reached.push_back(reaches);
    }
  }
  return links;
}

std::string links_text(const std::vector<std::vector<bool>>& links) {
  if (links.size() == 1) return "1 GPU, no peers";
  bool all = true;
  std::string text;
  for (std::size_t from = 0; from < links.size(); ++from) {
    for (const bool reaches : links[from]) all = all && reaches;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", from, peers_text(links[from], from));
  }
  return all ? fmt::format("all {} GPUs reach each other", links.size()) : text;
}

}  // namespace moejit::runtime
