// fc2_bias_grad: writes sums of the 2880 columns of e4m3 rows of each expert, times probability
// column_sums input=F8_E4M3 local_experts=8 sections=1 section_columns=2880 pitch=2880 times_prob
//   threads=256
#include "moejit_device/bias/column_sums.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;             // groups of rows
constexpr int32_t kSections = 1;           // parts of a row
constexpr int32_t kSectionColumns = 2880;  // of each that are added up
constexpr int32_t kPitch = 2880;           // columns of a row
constexpr bool kInterleaved = false;       // columns of the parts alternate in the sums
constexpr bool kTimesProb = true;          // rows count with their probabilities
constexpr bool kAdds = false;              // to what is there
constexpr int32_t kThreads = 256;          // per CTA

using Kernel = ColumnSums<E4m3GradientRows<kPitch>, kGroups, kSections, kSectionColumns,
                          kInterleaved, kTimesProb, kAdds, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_fc2_bias_grad_e4m3_f32_1x128_fb813cf3,
              BiasGradientParams) {
  Kernel::run(params);
}
