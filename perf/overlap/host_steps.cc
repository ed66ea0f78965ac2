#include "perf/overlap/host_steps.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "perf/common/calls.h"
#include "perf/overlap/matmul.h"

namespace axccl::perf::overlap {
namespace {

// Small integers without a pattern.
int64_t Noise(int64_t row, int64_t column, uint64_t salt) {
  uint64_t x =
      static_cast<uint64_t>(row) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(column) * 0xc2b2ae3d27d4eb4fu + salt;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
  return static_cast<int64_t>((x >> 40) % 5) - 2;
}
int64_t ElementOfA(int64_t row, int64_t column) { return Noise(row, column, 1); }
int64_t ElementOfB(int64_t row, int64_t column) { return Noise(row, column, 2); }
// A row of the result is checked by its product with these, none of which is 0.
int64_t Weight(int64_t column) { return Noise(0, column, 3) + 3; }

}  // namespace

Floats::Floats(int64_t count, bool on_heap) : count_(std::max<int64_t>(count, 1)), on_heap_(on_heap) {
  constexpr size_t kAlignment = 4096;
  const size_t bytes = static_cast<size_t>(count_) * sizeof(float);
  if (on_heap_) {
    data_ = static_cast<float*>(std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment));
    if (data_ == nullptr) Fail(kExitFailed, "no memory for %zu bytes", bytes);
  } else {
    PERF_CALL(ncclMemAlloc(reinterpret_cast<void**>(&data_), bytes));
  }
  std::fill(data_, data_ + count_, 0.0f);
}

Floats::~Floats() {
  if (on_heap_) {
    std::free(data_);
  } else {
    PERF_CALL(ncclMemFree(data_));
  }
}

void Floats::Spoil() { std::fill(data_, data_ + count_, std::numeric_limits<float>::quiet_NaN()); }

HostSteps::HostSteps(const OverlapOptions& options, int rank, ncclComm_t comm)
    : options_(options),
      comm_(comm),
      layout_(options, rank),
      a_(layout_.a_count, options.malloc),
      b_(layout_.b_count, options.malloc),
      c_(layout_.c_count, options.malloc),
      other_(layout_.other_count, options.malloc) {
  layout_.Place(ncclFloat32, sizeof(float), a_.data(), c_.data(), other_.data());
  FillInputs();
  FindExpected();
  MakePipeline();
  PERF_CALL(axcclStreamCreate(&stream_, axcclStreamNonBlocking));
  streams_.resize(static_cast<size_t>(options.slices));
  ended_.resize(streams_.size());
  for (axcclStream_t& one : streams_) PERF_CALL(axcclStreamCreate(&one, axcclStreamNonBlocking));
  for (axcclEvent_t& event : ended_) PERF_CALL(axcclEventCreate(&event));
  PERF_CALL(axcclEventCreate(&begun_));
}

HostSteps::~HostSteps() {
  if (pipeline_ != nullptr) PERF_CALL(axcclPipelineDestroy(pipeline_));
  for (const axcclStream_t one : streams_) PERF_CALL(axcclStreamDestroy(one));
  for (const axcclEvent_t event : ended_) PERF_CALL(axcclEventDestroy(event));
  PERF_CALL(axcclEventDestroy(begun_));
  PERF_CALL(axcclStreamDestroy(stream_));
}

std::string HostSteps::multiplier() const { return std::string(MatmulName()) + ", one thread each"; }

void HostSteps::FillInputs() {
  const int64_t first_k = layout_.gathers ? 0 : layout_.rank * layout_.own_k;
  float* const a = layout_.gathers ? other_.data() : a_.data();
  for (int64_t i = 0; i < layout_.own_rows; ++i) {
    const int64_t row = layout_.gathers ? layout_.GlobalRow(i) : i;
    for (int64_t l = 0; l < layout_.own_k; ++l)
      a[i * layout_.own_k + l] = static_cast<float>(ElementOfA(row, first_k + l));
  }
  for (int64_t l = 0; l < layout_.own_k; ++l) {
    for (int64_t j = 0; j < options_.n; ++j)
      b_.data()[l * options_.n + j] = static_cast<float>(ElementOfB(first_k + l, j));
  }
}

void HostSteps::FindExpected() {
  std::vector<int64_t> weighted(static_cast<size_t>(options_.k));
  for (int64_t l = 0; l < options_.k; ++l) {
    for (int64_t j = 0; j < options_.n; ++j) weighted[static_cast<size_t>(l)] += ElementOfB(l, j) * Weight(j);
  }
  for (int64_t i = 0; i < layout_.result_rows; ++i) {
    const int64_t row = layout_.gathers ? i : layout_.GlobalRow(i);
    int64_t sum = 0;
    for (int64_t l = 0; l < options_.k; ++l) sum += ElementOfA(row, l) * weighted[static_cast<size_t>(l)];
    expected_.push_back(static_cast<double>(sum));
  }
}

void HostSteps::MakePipeline() {
  const axcclPipelineSpec_t spec = layout_.Spec();
  const ncclResult_t made = axcclPipelineCreate(&pipeline_, &spec, axcclDefaultChannel(comm_));
  if (made == ncclInvalidUsage) {
    refusal_ = ncclGetLastError(nullptr);
  } else {
    PERF_CALL(made);
  }
}

void HostSteps::Spoil() {
  c_.Spoil();
  (layout_.gathers ? a_ : other_).Spoil();
}

std::string HostSteps::Check() const {
  const float* const result = layout_.gathers ? c_.data() : other_.data();
  for (size_t i = 0; i < expected_.size(); ++i) {
    double sum = 0;
    const float* const row = result + static_cast<int64_t>(i) * options_.n;
    for (int64_t j = 0; j < options_.n; ++j) sum += static_cast<double>(row[j]) * static_cast<double>(Weight(j));
    if (sum != expected_[i])
      return "row " + std::to_string(i) + " of the result of rank " + std::to_string(layout_.rank) + " is wrong";
  }
  return "";
}

// ---- steps ----

void HostSteps::Do(Mode mode, Parts parts, Trace* trace) {
  if (trace != nullptr) trace->BeginMode(static_cast<int>(mode));
  switch (mode) {
    case Mode::kBulk:
      return Bulk(parts, trace);
    case Mode::kCalls:
      return Calls(parts, trace);
    case Mode::kPipeline:
      return Pipeline(parts, trace);
  }
}

void HostSteps::Multiply(int64_t first_row, int64_t rows, int64_t number, Trace* trace) {
  const double begin = trace != nullptr ? Trace::Now() : 0;
  Matmul(a_.data() + first_row * layout_.own_k, b_.data(), c_.data() + first_row * options_.n, rows, options_.n,
         layout_.own_k);
  if (trace != nullptr) trace->Span(Happened::kMatmul, number, begin);
}

void HostSteps::Bulk(Parts parts, Trace* trace) {
  if (!layout_.gathers && parts != Parts::kCommunicate) Multiply(0, options_.m, -1, trace);
  if (parts != Parts::kCompute) {
    const double begin = Trace::Now();
    layout_.Collective(0, options_.slices, comm_, axcclStreamToCuda(stream_));
    PERF_CALL(axcclStreamSynchronize(stream_));
    if (trace != nullptr) trace->Span(Happened::kCollective, -1, begin);
  }
  if (layout_.gathers && parts != Parts::kCommunicate) Multiply(0, options_.m, -1, trace);
}

void HostSteps::CallSlice(int64_t slice, Trace* trace) {
  const axcclStream_t stream = streams_[static_cast<size_t>(slice)];
  if (trace != nullptr) trace->Instant(Happened::kCalled, slice);
  PERF_CALL(axcclStreamWaitEvent(stream, begun_));
  layout_.Collective(slice, 1, comm_, axcclStreamToCuda(stream));
  PERF_CALL(axcclEventRecord(ended_[static_cast<size_t>(slice)], stream));
}

// The products with a slice of what was gathered.
void HostSteps::UseSlice(int64_t slice, Trace* trace) {
  const int64_t rows = options_.m / options_.slices;
  if (options_.pattern == Pattern::kAgMatmul) return Multiply(slice * rows, rows, slice, trace);
  for (int64_t i = 1; i < options_.ranks; ++i) {
    const int64_t block = (layout_.rank + i) % options_.ranks;
    Multiply((block * options_.slices + slice) * layout_.slice_rows, layout_.slice_rows, slice, trace);
  }
}

void HostSteps::Calls(Parts parts, Trace* trace) {
  const bool computes = parts != Parts::kCommunicate, communicates = parts != Parts::kCompute;
  if (communicates) PERF_CALL(axcclEventRecord(begun_, stream_));
  for (int64_t s = 0; s < options_.slices; ++s) {
    const int64_t rows = options_.m / options_.slices;
    if (!layout_.gathers && computes) Multiply(s * rows, rows, s, trace);
    if (communicates) CallSlice(s, trace);
  }
  if (options_.pattern == Pattern::kAgMatmulOwn && computes) {  // the own block needs no communication
    const double begin = Trace::Now();
    const int64_t rows = options_.m / options_.ranks, first = layout_.rank * rows;
    Matmul(other_.data(), b_.data(), c_.data() + first * options_.n, rows, options_.n, options_.k);
    if (trace != nullptr) trace->Span(Happened::kMatmul, -1, begin);
  }
  for (int64_t s = 0; s < options_.slices; ++s) {
    if (communicates) {
      PERF_CALL(axcclEventSynchronize(ended_[static_cast<size_t>(s)]));
      if (trace != nullptr) trace->Instant(Happened::kSeen, s);
    }
    if (layout_.gathers && computes) UseSlice(s, trace);
  }
  if (!communicates) return;
  for (const axcclEvent_t event : ended_) PERF_CALL(axcclStreamWaitEvent(stream_, event));
  PERF_CALL(axcclStreamSynchronize(stream_));
}

void HostSteps::Pipeline(Parts parts, Trace* trace) {
  const bool computes = parts != Parts::kCommunicate, communicates = parts != Parts::kCompute;
  axcclPipelineInfo_t info{};
  info.size = sizeof(info);
  PERF_CALL(axcclPipelineGetInfo(pipeline_, &info));
  if (communicates) PERF_CALL(axcclPipelineStart(pipeline_, axcclStreamToCuda(stream_)));
  std::optional<Watcher> watcher;
  if (communicates && trace != nullptr) {
    uint32_t* words = nullptr;
    PERF_CALL(axcclPipelineGetFlags(pipeline_, axcclOut, &words, nullptr));
    watcher.emplace(trace, words, info.out_chunks);
  }
  axcclChunk_t chunk = AXCCL_CHUNK_INITIALIZER;
  for (int64_t i = 0; i < info.in_chunks && !layout_.gathers; ++i) {
    PERF_CALL(axcclPipelineGetChunk(pipeline_, axcclIn, i, &chunk));
    if (computes) Multiply(layout_.in.row_of(chunk.view.data), layout_.slice_rows, chunk.number, trace);
    if (!communicates) continue;
    if (trace != nullptr) trace->Instant(Happened::kReady, chunk.number);
    PERF_CALL(axcclPipelineReady(pipeline_, chunk.number));
  }
  for (int64_t i = 0; i < info.out_chunks; ++i) {
    PERF_CALL(axcclPipelineGetChunk(pipeline_, axcclOut, i, &chunk));
    if (communicates) PERF_CALL(axcclPipelineWait(pipeline_, chunk.number));
    if (layout_.gathers && computes)
      Multiply(layout_.out.row_of(chunk.view.data), layout_.slice_rows, chunk.number, trace);
  }
  if (!communicates) return;
  PERF_CALL(axcclPipelineFinish(pipeline_, axcclStreamToCuda(stream_)));
  PERF_CALL(axcclStreamSynchronize(stream_));
}

}  // namespace axccl::perf::overlap
