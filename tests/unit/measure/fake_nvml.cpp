// SPDX-License-Identifier: Apache-2.0
// Stands in for libnvidia-ml.so.1, with the functions and records of nvml.h that moejit uses. There
// is one GPU, at 00000000:0f:00.0. Each reading of the power is 10 W above the one before.
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
struct FieldValue {  // nvmlFieldValue_t
  unsigned field, scope;
  long long timestamp, latency;
  int value_type, result;
  union {
    double floating;
    unsigned natural;
    unsigned long long wide;
  } value;
};
static_assert(sizeof(FieldValue) == 40);
int the_device = 0;
unsigned milliwatts = 0;
constexpr int kNotFound = 6;
bool is_known(const void* device) { return device == &the_device; }
}  // namespace

EXPORT int nvmlInit_v2() {
  milliwatts = 600'000;
  return 0;
}
EXPORT int nvmlShutdown() { return 0; }
EXPORT int nvmlSystemGetDriverVersion(char* version, unsigned) {
  std::strcpy(version, "580.0.1");
  return 0;
}
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* place, void** device) {
  if (std::strcmp(place, "00000000:0f:00.0") != 0) return kNotFound;
  *device = &the_device;
  return 0;
}
EXPORT int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* limit) {
  *limit = 700'000;
  return is_known(device) ? 0 : kNotFound;
}
EXPORT int nvmlDeviceGetMaxClockInfo(void* device, unsigned kind, unsigned* megahertz) {
  *megahertz = kind == 1 ? 1980 : 3201;
  return is_known(device) ? 0 : kNotFound;
}
EXPORT int nvmlDeviceGetClockInfo(void* device, unsigned kind, unsigned* megahertz) {
  *megahertz = kind == 1 ? 1500 : 3201;
  return is_known(device) ? 0 : kNotFound;
}
EXPORT int nvmlDeviceGetFieldValues(void* device, int count, FieldValue* values) {
  for (int i = 0; i < count; ++i) {
    values[i].result = values[i].field == 186 ? 0 : kNotFound;
    values[i].value_type = 1;
    values[i].value.natural = milliwatts;
  }
  milliwatts += 10'000;
  return is_known(device) ? 0 : kNotFound;
}
// The present name of the function is missing, as in drivers before 535; so is the temperature.
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* bits) {
  *bits = 0x1 | 0x4 | 0x40;
  return is_known(device) ? 0 : kNotFound;
}
