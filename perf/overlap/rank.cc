#include "perf/overlap/rank.h"

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

int64_t ProductSize(const OverlapOptions& o) { return o.m * o.n; }

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

axcclView_t OverlapRank::Side::Slices(int64_t first, const int64_t* view_sizes) const {
  axcclView_t view = AXCCL_VIEW_INITIALIZER;
  view.data = data + first * strides[0];
  view.num_dims = 4;
  view.sizes = view_sizes;
  view.strides = strides;
  return view;
}

OverlapRank::OverlapRank(const OverlapOptions& options, int rank, ncclComm_t comm, axcclStream_t stream)
    : options_(options),
      rank_(rank),
      comm_(comm),
      stream_(stream),
      slice_rows_(options.m / options.slices / (options.pattern == Pattern::kMatmulAr ? 1 : options.ranks)),
      own_k_(gathers() ? options.k : options.k / options.ranks),
      a_(options.m * own_k_, options.malloc),
      b_(own_k_ * options.n, options.malloc),
      c_(ProductSize(options), options.malloc),
      other_(gathers() ? options.m / options.ranks * options.k : slice_rows_ * options.slices * options.n,
             options.malloc) {
  PlaceSides();
  FillInputs();
  FindExpected();
  MakePipeline();
  streams_.resize(static_cast<size_t>(options.slices));
  ended_.resize(streams_.size());
  for (axcclStream_t& one : streams_) PERF_CALL(axcclStreamCreate(&one, axcclStreamNonBlocking));
  for (axcclEvent_t& event : ended_) PERF_CALL(axcclEventCreate(&event));
  PERF_CALL(axcclEventCreate(&begun_));
}

OverlapRank::~OverlapRank() {
  if (pipeline_ != nullptr) PERF_CALL(axcclPipelineDestroy(pipeline_));
  for (const axcclStream_t one : streams_) PERF_CALL(axcclStreamDestroy(one));
  for (const axcclEvent_t event : ended_) PERF_CALL(axcclEventDestroy(event));
  PERF_CALL(axcclEventDestroy(begun_));
}

void OverlapRank::PlaceSides() {
  const int64_t columns = gathers() ? options_.k : options_.n;
  const int64_t blocks = options_.pattern == Pattern::kMatmulAr ? 1 : options_.ranks;
  const int64_t chunk = slice_rows_ * columns;
  const auto place = [&](float* data, int64_t side_blocks, int64_t slice_stride, int64_t block_stride) {
    return Side{data, {options_.slices, side_blocks, slice_rows_, columns}, {slice_stride, block_stride, columns, 1}};
  };
  const Side one = place(other_.data(), 1, chunk, chunk);
  const Side all = options_.pattern == Pattern::kAgMatmulOwn
                       ? place(a_.data(), blocks, chunk, chunk * options_.slices)
                       : place(gathers() ? a_.data() : c_.data(), blocks, chunk * blocks, chunk);
  in_ = gathers() ? one : all;
  out_ = gathers() ? all : one;
}

// The row of the whole a, or result, that is row `own_row` of this rank's part.
int64_t OverlapRank::GlobalRow(int64_t own_row) const {
  if (options_.pattern == Pattern::kMatmulAr) return own_row;
  if (options_.pattern == Pattern::kAgMatmulOwn) return rank_ * (options_.m / options_.ranks) + own_row;
  return (own_row / slice_rows_ * options_.ranks + rank_) * slice_rows_ + own_row % slice_rows_;
}

void OverlapRank::FillInputs() {
  const int64_t first_k = gathers() ? 0 : rank_ * own_k_;
  float* const a = gathers() ? other_.data() : a_.data();
  const int64_t rows = gathers() ? options_.m / options_.ranks : options_.m;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = gathers() ? GlobalRow(i) : i;
    for (int64_t l = 0; l < own_k_; ++l) a[i * own_k_ + l] = static_cast<float>(ElementOfA(row, first_k + l));
  }
  for (int64_t l = 0; l < own_k_; ++l) {
    for (int64_t j = 0; j < options_.n; ++j)
      b_.data()[l * options_.n + j] = static_cast<float>(ElementOfB(first_k + l, j));
  }
}

void OverlapRank::FindExpected() {
  std::vector<int64_t> weighted(static_cast<size_t>(options_.k));
  for (int64_t l = 0; l < options_.k; ++l) {
    for (int64_t j = 0; j < options_.n; ++j) weighted[static_cast<size_t>(l)] += ElementOfB(l, j) * Weight(j);
  }
  const int64_t rows = gathers() ? options_.m : slice_rows_ * options_.slices;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = gathers() ? i : GlobalRow(i);
    int64_t sum = 0;
    for (int64_t l = 0; l < options_.k; ++l) sum += ElementOfA(row, l) * weighted[static_cast<size_t>(l)];
    expected_.push_back(static_cast<double>(sum));
  }
}

void OverlapRank::MakePipeline() {
  axcclPipelineSpec_t spec = AXCCL_PIPELINE_SPEC_INITIALIZER;
  spec.kind = gathers()                                ? axcclPipelineAllGather
              : options_.pattern == Pattern::kMatmulAr ? axcclPipelineAllReduce
                                                       : axcclPipelineReduceScatter;
  spec.in = in_.View(), spec.out = out_.View();
  spec.dim = 1;
  spec.slice_dim = 0, spec.slices = options_.slices;
  if (options_.pattern == Pattern::kAgMatmulOwn) spec.order = axcclOwnFirst;
  if (!gathers()) spec.flags = axcclProducer;
  const ncclResult_t made = axcclPipelineCreate(&pipeline_, &spec, axcclDefaultChannel(comm_));
  if (made == ncclInvalidUsage) {
    refusal_ = ncclGetLastError(nullptr);
  } else {
    PERF_CALL(made);
  }
}

void OverlapRank::Spoil() {
  c_.Spoil();
  (gathers() ? a_ : other_).Spoil();
}

std::string OverlapRank::Check() const {
  const float* const result = gathers() ? c_.data() : other_.data();
  for (size_t i = 0; i < expected_.size(); ++i) {
    double sum = 0;
    const float* const row = result + static_cast<int64_t>(i) * options_.n;
    for (int64_t j = 0; j < options_.n; ++j) sum += static_cast<double>(row[j]) * static_cast<double>(Weight(j));
    if (sum != expected_[i])
      return "row " + std::to_string(i) + " of the result of rank " + std::to_string(rank_) + " is wrong";
  }
  return "";
}

// ---- steps ----

void OverlapRank::Do(Mode mode, Parts parts, Trace* trace) {
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

void OverlapRank::Multiply(int64_t first_row, int64_t rows, int64_t number, Trace* trace) {
  const double begin = trace != nullptr ? Trace::Now() : 0;
  Matmul(a_.data() + first_row * own_k_, b_.data(), c_.data() + first_row * options_.n, rows, options_.n, own_k_);
  if (trace != nullptr) trace->Span(Happened::kMatmul, number, begin);
}

void OverlapRank::Collective(const Side& in_side, const Side& out_side, int64_t slice, int64_t slices,
                             axcclStream_t stream) {
  int64_t in_sizes[4], out_sizes[4];
  std::copy_n(in_side.sizes, 4, in_sizes);
  std::copy_n(out_side.sizes, 4, out_sizes);
  in_sizes[0] = out_sizes[0] = slices;
  const axcclView_t in = in_side.Slices(slice, in_sizes), out = out_side.Slices(slice, out_sizes);
  const axcclChannel_t channel = axcclDefaultChannel(comm_);
  const cudaStream_t cuda = axcclStreamToCuda(stream);
  if (gathers()) {
    PERF_CALL(axcclAllGather(1, &in, &out, 1, channel, nullptr, cuda));
  } else if (options_.pattern == Pattern::kMatmulAr) {
    PERF_CALL(axcclAllReduce(1, &in, &out, ncclSum, channel, nullptr, cuda));
  } else {
    PERF_CALL(axcclReduceScatter(1, &in, &out, 1, ncclSum, channel, nullptr, cuda));
  }
}

void OverlapRank::Bulk(Parts parts, Trace* trace) {
  if (!gathers() && parts != Parts::kCommunicate) Multiply(0, options_.m, -1, trace);
  if (parts != Parts::kCompute) {
    const double begin = Trace::Now();
    Collective(in_, out_, 0, options_.slices, stream_);
    PERF_CALL(axcclStreamSynchronize(stream_));
    if (trace != nullptr) trace->Span(Happened::kCollective, -1, begin);
  }
  if (gathers() && parts != Parts::kCommunicate) Multiply(0, options_.m, -1, trace);
}

void OverlapRank::CallSlice(int64_t slice, Trace* trace) {
  const axcclStream_t stream = streams_[static_cast<size_t>(slice)];
  if (trace != nullptr) trace->Instant(Happened::kCalled, slice);
  PERF_CALL(axcclStreamWaitEvent(stream, begun_));
  Collective(in_, out_, slice, 1, stream);
  PERF_CALL(axcclEventRecord(ended_[static_cast<size_t>(slice)], stream));
}

// The products with a slice of what was gathered.
void OverlapRank::UseSlice(int64_t slice, Trace* trace) {
  const int64_t rows = options_.m / options_.slices;
  if (options_.pattern == Pattern::kAgMatmul) return Multiply(slice * rows, rows, slice, trace);
  for (int64_t i = 1; i < options_.ranks; ++i) {
    const int64_t block = (rank_ + i) % options_.ranks;
    Multiply((block * options_.slices + slice) * slice_rows_, slice_rows_, slice, trace);
  }
}

void OverlapRank::Calls(Parts parts, Trace* trace) {
  const bool computes = parts != Parts::kCommunicate, communicates = parts != Parts::kCompute;
  if (communicates) PERF_CALL(axcclEventRecord(begun_, stream_));
  for (int64_t s = 0; s < options_.slices; ++s) {
    const int64_t rows = options_.m / options_.slices;
    if (!gathers() && computes) Multiply(s * rows, rows, s, trace);
    if (communicates) CallSlice(s, trace);
  }
  if (options_.pattern == Pattern::kAgMatmulOwn && computes) {  // the own block needs no communication
    const double begin = Trace::Now();
    const int64_t rows = options_.m / options_.ranks, first = rank_ * rows;
    Matmul(other_.data(), b_.data(), c_.data() + first * options_.n, rows, options_.n, options_.k);
    if (trace != nullptr) trace->Span(Happened::kMatmul, -1, begin);
  }
  for (int64_t s = 0; s < options_.slices; ++s) {
    if (communicates) {
      PERF_CALL(axcclEventSynchronize(ended_[static_cast<size_t>(s)]));
      if (trace != nullptr) trace->Instant(Happened::kSeen, s);
    }
    if (gathers() && computes) UseSlice(s, trace);
  }
  if (!communicates) return;
  for (const axcclEvent_t event : ended_) PERF_CALL(axcclStreamWaitEvent(stream_, event));
  PERF_CALL(axcclStreamSynchronize(stream_));
}

void OverlapRank::Pipeline(Parts parts, Trace* trace) {
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
  for (int64_t i = 0; i < info.in_chunks && !gathers(); ++i) {
    PERF_CALL(axcclPipelineGetChunk(pipeline_, axcclIn, i, &chunk));
    if (computes) Multiply(in_.row_of(chunk.view.data), slice_rows_, chunk.number, trace);
    if (!communicates) continue;
    if (trace != nullptr) trace->Instant(Happened::kReady, chunk.number);
    PERF_CALL(axcclPipelineReady(pipeline_, chunk.number));
  }
  for (int64_t i = 0; i < info.out_chunks; ++i) {
    PERF_CALL(axcclPipelineGetChunk(pipeline_, axcclOut, i, &chunk));
    if (communicates) PERF_CALL(axcclPipelineWait(pipeline_, chunk.number));
    if (gathers() && computes) Multiply(out_.row_of(chunk.view.data), slice_rows_, chunk.number, trace);
  }
  if (!communicates) return;
  PERF_CALL(axcclPipelineFinish(pipeline_, axcclStreamToCuda(stream_)));
  PERF_CALL(axcclStreamSynchronize(stream_));
}

}  // namespace axccl::perf::overlap
