#include "perf/overlap/gpu_steps.h"

#include <algorithm>

#include "perf/common/calls.h"

namespace axccl::perf::overlap {
namespace {

constexpr int64_t kSparse = 128;       // one element of so many in a row of a is 1
constexpr uint16_t kOne = 0x3f80;      // in bfloat16
constexpr int64_t kMostRowsRead = 64;  // rows of a result that are checked

bool ElementOfA(int64_t row, int64_t column) { return (row - column) % kSparse == 0; }
bool ElementOfB(int64_t row, int64_t column) { return (row / kSparse + column) % 3 == 0; }

int64_t ElementOfProduct(int64_t row, int64_t column, int64_t k) {
  int64_t sum = 0;
  for (int64_t l = row % kSparse; l < k; l += kSparse) sum += ElementOfB(l, column);
  return sum;
}

int64_t IntegerOf(uint16_t element) {
  const uint32_t bits = uint32_t{element} << 16;
  float value;
  static_assert(sizeof(value) == sizeof(bits));
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value >= 0 && value < 1e6 ? static_cast<int64_t>(value) : -1;
}

}  // namespace

GpuSteps::GpuSteps(const OverlapOptions& options, int rank, ncclComm_t comm)
    : options_(options),
      comm_(comm),
      gpu_(rank, options.plain),
      layout_(options, rank),
      a_(Allocate(layout_.a_count)),
      b_(Allocate(layout_.b_count)),
      c_(Allocate(layout_.c_count)),
      other_(Allocate(layout_.other_count)),
      stream_(Gpu::NewStream()) {
  layout_.Place(ncclBfloat16, sizeof(Element), a_, c_, other_);
  FillInputs();
  MakePipeline();
  for (int64_t s = 0; s < options.slices; ++s) {
    streams_.push_back(Gpu::NewStream());
    begun_.push_back(Gpu::NewEvent());
    ended_.push_back(Gpu::NewEvent());
  }
}

GpuSteps::~GpuSteps() {
  if (pipeline_ != nullptr) PERF_CALL(axcclPipelineDestroy(pipeline_));
  for (void* const memory : memory_) PERF_CALL(ncclMemFree(memory));
}

GpuSteps::Element* GpuSteps::Allocate(int64_t count) {
  void* memory = nullptr;
  PERF_CALL(ncclMemAlloc(&memory, static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(Element)));
  memory_.push_back(memory);
  return static_cast<Element*>(memory);
}

void GpuSteps::FillInputs() {
  const int64_t first_k = layout_.gathers ? 0 : layout_.rank * layout_.own_k;
  Element* const a = layout_.gathers ? other_ : a_;
  std::vector<Element> row(static_cast<size_t>(std::max(layout_.own_k, options_.n)));
  for (int64_t i = 0; i < layout_.own_rows; ++i) {
    const int64_t global = layout_.gathers ? layout_.GlobalRow(i) : i;
    for (int64_t l = 0; l < layout_.own_k; ++l)
      row[static_cast<size_t>(l)] = ElementOfA(global, first_k + l) ? kOne : 0;
    Gpu::Upload(a + i * layout_.own_k, row.data(), static_cast<size_t>(layout_.own_k) * sizeof(Element));
  }
  for (int64_t l = 0; l < layout_.own_k; ++l) {
    for (int64_t j = 0; j < options_.n; ++j) row[static_cast<size_t>(j)] = ElementOfB(first_k + l, j) ? kOne : 0;
    Gpu::Upload(b_ + l * options_.n, row.data(), static_cast<size_t>(options_.n) * sizeof(Element));
  }
  Gpu::Settle();
}

void GpuSteps::MakePipeline() {
  axcclPipelineSpec_t spec = layout_.Spec();
  spec.engine = options_.engine;
  const ncclResult_t made = axcclPipelineCreate(&pipeline_, &spec, axcclDefaultChannel(comm_));
  if (made == ncclInvalidUsage || made == ncclInvalidArgument) {
    refusal_ = ncclGetLastError(nullptr);
  } else {
    PERF_CALL(made);
  }
}

std::string GpuSteps::engine() const {
  axcclPipelineInfo_t info{};
  info.size = sizeof(info);
  if (pipeline_ == nullptr) return "none";
  PERF_CALL(axcclPipelineGetInfo(pipeline_, &info));
  if (info.engine == axcclEngineCopy) return "copy engines";
  return "a kernel of " + std::to_string(info.blocks) + " blocks";
}

void GpuSteps::Spoil() {
  constexpr unsigned char kNan = 0xff;
  Gpu::Set(c_, kNan, static_cast<size_t>(layout_.c_count) * sizeof(Element));
  if (layout_.gathers) {
    Gpu::Set(a_, kNan, static_cast<size_t>(layout_.a_count) * sizeof(Element));
  } else {
    Gpu::Set(other_, kNan, static_cast<size_t>(layout_.other_count) * sizeof(Element));
  }
  Gpu::Settle();
}

std::string GpuSteps::Check() const {
  const Element* const result = layout_.gathers ? c_ : other_;
  const int64_t step = layout_.result_rows / kMostRowsRead + 1;
  std::vector<Element> row(static_cast<size_t>(options_.n));
  for (int64_t i = 0; i < layout_.result_rows; i += step) {
    Gpu::Download(row.data(), result + i * options_.n, row.size() * sizeof(Element));
    const int64_t global = layout_.gathers ? i : layout_.GlobalRow(i);
    for (int64_t j = 0; j < options_.n; ++j) {
      if (IntegerOf(row[static_cast<size_t>(j)]) == ElementOfProduct(global, j, options_.k)) continue;
      return "row " + std::to_string(i) + " of the result of rank " + std::to_string(layout_.rank) + " is wrong";
    }
  }
  return "";
}

// ---- steps ----

void GpuSteps::Do(Mode mode, Parts parts, Trace*) {
  switch (mode) {
    case Mode::kBulk:
      Bulk(parts);
      break;
    case Mode::kCalls:
      Calls(parts);
      break;
    case Mode::kPipeline:
      Pipeline(parts);
  }
  Gpu::Wait(stream_);
}

void GpuSteps::Multiply(int64_t first_row, int64_t rows) {
  gpu_.Multiply(a_ + first_row * layout_.own_k, b_, c_ + first_row * options_.n, rows, options_.n, layout_.own_k,
                stream_);
}

void GpuSteps::Bulk(Parts parts) {
  if (!layout_.gathers && parts != Parts::kCommunicate) Multiply(0, options_.m);
  if (parts != Parts::kCompute) layout_.Collective(0, options_.slices, comm_, stream_);
  if (layout_.gathers && parts != Parts::kCommunicate) Multiply(0, options_.m);
}

// The products with a slice of what was gathered.
void GpuSteps::UseSlice(int64_t slice) {
  const int64_t rows = options_.m / options_.slices;
  if (options_.pattern == Pattern::kAgMatmul) return Multiply(slice * rows, rows);
  for (int64_t i = 0; i < options_.ranks; ++i) {
    const int64_t block = (layout_.rank + i) % options_.ranks;
    Multiply((block * options_.slices + slice) * layout_.slice_rows, layout_.slice_rows);
  }
}

void GpuSteps::Calls(Parts parts) {
  const bool computes = parts != Parts::kCommunicate, communicates = parts != Parts::kCompute;
  const int64_t rows = options_.m / options_.slices;
  for (int64_t s = 0; s < options_.slices; ++s) {
    const auto at = static_cast<size_t>(s);
    if (!layout_.gathers && computes) Multiply(s * rows, rows);
    if (!communicates) continue;
    Gpu::Record(begun_[at], stream_);
    Gpu::Follow(streams_[at], begun_[at]);
    layout_.Collective(s, 1, comm_, streams_[at]);
    Gpu::Record(ended_[at], streams_[at]);
  }
  for (int64_t s = 0; s < options_.slices; ++s) {
    if (communicates) Gpu::Follow(stream_, ended_[static_cast<size_t>(s)]);
    if (layout_.gathers && computes) UseSlice(s);
  }
}

void GpuSteps::Pipeline(Parts parts) {
  const bool computes = parts != Parts::kCommunicate, communicates = parts != Parts::kCompute;
  axcclPipelineInfo_t info{};
  info.size = sizeof(info);
  PERF_CALL(axcclPipelineGetInfo(pipeline_, &info));
  if (communicates) PERF_CALL(axcclPipelineStart(pipeline_, stream_));
  axcclChunk_t chunk = AXCCL_CHUNK_INITIALIZER;
  for (int64_t i = 0; i < info.in_chunks && !layout_.gathers; ++i) {
    PERF_CALL(axcclPipelineGetChunk(pipeline_, axcclIn, i, &chunk));
    if (computes) Multiply(layout_.in.row_of(chunk.view.data), layout_.slice_rows);
    if (communicates) PERF_CALL(axcclPipelineStreamReady(pipeline_, chunk.number, stream_));
  }
  for (int64_t i = 0; i < info.out_chunks && layout_.gathers; ++i) {
    PERF_CALL(axcclPipelineGetChunk(pipeline_, axcclOut, i, &chunk));
    if (communicates) PERF_CALL(axcclPipelineStreamWait(pipeline_, chunk.number, stream_));
    if (computes) Multiply(layout_.out.row_of(chunk.view.data), layout_.slice_rows);
  }
  if (communicates) PERF_CALL(axcclPipelineFinish(pipeline_, stream_));
}

}  // namespace axccl::perf::overlap
