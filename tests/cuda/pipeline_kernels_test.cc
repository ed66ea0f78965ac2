// Kernels of the application that make and use the chunks of a pipeline, compiled by nvcc with axccl/device.h.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/cuda/embedded_kernels.h"
#include "tests/cuda/words.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::EnterGpu;
using harness::GpuDriver;
using harness::RankContext;
using harness::RunRanks;

constexpr int kRows = 4, kWidth = 8;  // of a chunk
constexpr int64_t kSlices = 3;

class Kernels {
 public:
  Kernels() {
    void* module = nullptr;
    EXPECT_EQ(driver_->load_module(&module, axccl_test_kernels), 0);
    EXPECT_EQ(driver_->get_function(&multiply_, module, "multiply_chunks"), 0);
    EXPECT_EQ(driver_->get_function(&produce_, module, "produce_chunks"), 0);
  }
  void Multiply(uint32_t* words, const int32_t* matrix, const int32_t* column, int32_t* result, unsigned chunks,
                axcclStream_t stream) const {
    int rows = kRows, width = kWidth;
    void* parameters[] = {&words, &matrix, &column, &result, &rows, &width};
    Launch(multiply_, chunks, parameters, stream);
  }
  void Produce(uint32_t* words, int32_t* matrix, int value, axcclStream_t stream) const {
    int rows = kRows, width = kWidth;
    void* parameters[] = {&words, &matrix, &rows, &width, &value};
    Launch(produce_, kSlices, parameters, stream);
  }

 private:
  void Launch(void* function, unsigned blocks, void** parameters, axcclStream_t stream) const {
    ASSERT_EQ(driver_->launch(function, blocks, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr), 0);
  }

  const GpuDriver* const driver_ = EnterGpu();
  void *multiply_ = nullptr, *produce_ = nullptr;
};

int Value(int start, int rank) { return 1000 * start + 100 * rank; }

class PipelineKernels : public testing::TestWithParam<axcclEngine_t> {};
INSTANTIATE_TEST_SUITE_P(Engines, PipelineKernels, testing::Values(axcclEngineKernel, axcclEngineCopy),
                         [](const auto& info) { return info.param == axcclEngineCopy ? "Copy" : "Kernel"; });

// One kernel multiplies all chunks while another one, on a second stream and launched later, makes the rank's own.
TEST_P(PipelineKernels, MultiplyAsChunksCome) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    const int ranks = context.nranks(), rank = context.rank();
    const auto size = static_cast<size_t>(kSlices) * kRows * kWidth;
    const int64_t own_sizes[] = {kSlices * kRows, kWidth}, all_sizes[] = {kSlices * kRows * ranks, kWidth};
    const auto rows = static_cast<size_t>(all_sizes[0]);
    Words own(size), all(size * static_cast<size_t>(ranks)), column(kWidth), result(rows);
    for (int i = 0; i < kWidth; ++i) column.get()[i] = i + 1;
    axcclPipelineSpec_t spec = AXCCL_PIPELINE_SPEC_INITIALIZER;
    spec.in.datatype = spec.out.datatype = ncclInt32;
    spec.in.num_dims = spec.out.num_dims = 2;
    spec.in.sizes = own_sizes, spec.in.data = own.get();
    spec.out.sizes = all_sizes, spec.out.data = all.get();
    spec.slices = kSlices;
    spec.engine = GetParam();
    spec.flags = axcclProducer;
    axcclPipeline_t pipeline = nullptr;
    ASSERT_OK(axcclPipelineCreate(&pipeline, &spec, axcclDefaultChannel(clique.comm())));
    uint32_t *in = nullptr, *out = nullptr;
    ASSERT_OK(axcclPipelineGetFlags(pipeline, axcclIn, &in, nullptr));
    ASSERT_OK(axcclPipelineGetFlags(pipeline, axcclOut, &out, nullptr));
    const Kernels kernels;
    const auto chunks = static_cast<unsigned>(kSlices) * static_cast<unsigned>(ranks);
    // A driver may let the first launch of a function wait for all kernels: it comes before those of the library.
    Words ready(chunks, 1);
    auto* const words = reinterpret_cast<uint32_t*>(ready.get());
    kernels.Produce(words, own.get(), 0, clique.stream());
    kernels.Multiply(words, all.get(), column.get(), result.get(), chunks, clique.stream());
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_TRUE(context.Barrier());
    for (int start = 0; start < 5; ++start) {
      result.Fill(-2);
      ASSERT_OK(axcclPipelineStart(pipeline, Cuda(clique.stream())));
      ASSERT_NO_FATAL_FAILURE(Follow(clique.stream(), clique.stream(0, 1)));  // words are reset
      kernels.Multiply(out, all.get(), column.get(), result.get(), chunks, clique.stream());
      kernels.Produce(in, own.get(), Value(start, rank), clique.stream(0, 1));
      ASSERT_OK(axcclPipelineFinish(pipeline, Cuda(clique.stream())));
      ASSERT_TRUE(clique.Synchronize());
      for (int row = 0; row < static_cast<int>(rows); ++row) {
        const int of_rank = row / static_cast<int>(own_sizes[0]), first = row % static_cast<int>(own_sizes[0]) * kWidth;
        int sum = 0;
        for (int i = 0; i < kWidth; ++i) sum += (Value(start, of_rank) + first + i) * (i + 1);
        ASSERT_EQ(result.get()[row], sum) << "start " << start << " row " << row;
      }
    }
    ASSERT_OK(axcclPipelineDestroy(pipeline));
    ASSERT_TRUE(context.Barrier());
  });
}

}  // namespace
}  // namespace axccl::tests
