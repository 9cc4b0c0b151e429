// fc1_bias_grad_add: adds sums of the 5760 columns of e4m3 rows of each expert
// column_sums input=F8_E4M3 local_experts=8 sections=2 section_columns=2880 pitch=2944 interleaved
//   adds threads=256
#include "moejit_device/bias/column_sums.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;             // groups of rows
constexpr int32_t kSections = 2;           // parts of a row
constexpr int32_t kSectionColumns = 2880;  // of each that are added up
constexpr int32_t kPitch = 5888;           // columns of a row
constexpr bool kInterleaved = true;        // columns of the parts alternate in the sums
constexpr bool kTimesProb = false;         // rows count with their probabilities
constexpr bool kAdds = true;               // to what is there
constexpr int32_t kThreads = 256;          // per CTA

using Kernel = ColumnSums<E4m3GradientRows<kPitch>, kGroups, kSections, kSectionColumns,
                          kInterleaved, kTimesProb, kAdds, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_fc1_bias_grad_add_e4m3_f32_1x128_b5de2272, BiasGradientParams) {
  Kernel::run(params);
}
