#include "perf/common/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "perf/common/calls.h"
#include "perf/common/data.h"
#include "perf/common/types.h"

namespace axccl::perf {
namespace {

constexpr uint64_t kTimingRep = 99;  // data of the timed loop; checks use 1, 2, ...
constexpr size_t kLargestElement = 8;
constexpr unsigned char kStale = 0xa5;  // what receive buffers hold before a check

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

size_t AvailableMemory() {
  FILE* file = std::fopen("/proc/meminfo", "r");
  if (file == nullptr) return ~size_t{0};
  char line[256];
  size_t kib = ~size_t{0} / 1024;
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::sscanf(line, "MemAvailable: %zu kB", &kib) == 1) break;
  }
  std::fclose(file);
  return kib * 1024;
}

void Allocate(const Options& options, size_t bytes, char** out) {
  void* memory = nullptr;
  if (options.malloc_buffers) {
    // What is registered must not share a page with another buffer that is.
    const size_t alignment = options.registration == Registration::kNone ? 64 : 4096;
    memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (memory == nullptr) Fail(kExitFailed, "aligned_alloc of %zu bytes failed", bytes);
  } else {
    PERF_CALL(ncclMemAlloc(&memory, bytes));
  }
  // Pages that were never written read as one shared page of zeros, which would be faster than real memory.
  std::memset(memory, 0x3f, bytes);
  *out = static_cast<char*>(memory);
}

void Release(const Options& options, char* memory) {
  if (options.malloc_buffers) {
    std::free(memory);
  } else {
    PERF_CALL(ncclMemFree(memory));
  }
}

// Groups have different data, so that data from a rank of another group is wrong.
uint64_t RepOf(const LocalRank& rank, uint64_t rep) { return rep + (static_cast<uint64_t>(rank.list) << 32); }

// PreMulSum's scalar in the element type.
uint64_t ScalarBits(int type, int rank) {
  int value = MulSumScalar(rank);
  return FormatOf(type).is_float ? EncodeFloat(type, value) : static_cast<uint64_t>(value);
}

}  // namespace

Bench::Bench(Run* run, int thread, Exchange* exchange)
    : run_(run),
      thread_(thread),
      exchange_(exchange),
      collective_(*run->collective),
      ranks_(run->ranks.data() + thread * run->options.ranks_per_thread),
      rank_count_(static_cast<size_t>(run->options.ranks_per_thread)),
      max_bytes_(run->options.max_bytes) {
  AgreeOnMaxBytes();
  SetUpRanks();
}

Bench::~Bench() {
  for (LocalRank* rank = ranks_; rank != ranks_ + rank_count_; ++rank) {
    for (void* registration : rank->registrations) {
      if (registration == nullptr) continue;
      if (run_->options.registration == Registration::kWindow) {
        PERF_CALL(ncclCommWindowDeregister(rank->comm, static_cast<ncclWindow_t>(registration)));
      } else {
        PERF_CALL(ncclCommDeregister(rank->comm, registration));
      }
    }
    if (rank->stream != nullptr) PERF_CALL(axcclStreamDestroy(rank->stream));
    Release(run_->options, rank->send);
    Release(run_->options, rank->recv);
  }
}

// Two buffers for each rank, and a tenth of the memory left for other processes.
void Bench::AgreeOnMaxBytes() {
  double local_ranks = static_cast<double>(run_->world.local_processes) * static_cast<double>(run_->ranks.size());
  double fits = static_cast<double>(AvailableMemory()) * 0.9 / local_ranks / 2;
  fits = exchange_->Combine(fits, Average::kMin);
  if (static_cast<double>(max_bytes_) <= fits) return;
  if (!run_->options.views.shapes.empty()) {
    Fail(reports() ? kExitUsage : kExitPeerFailed,
         reports() ? "option %s: needs two buffers of %zu bytes a rank, %.0f "
                     "are free; give smaller sizes"
                   : "",
         ViewText(run_->options.views).c_str(), max_bytes_, fits);
  }
  max_bytes_ = static_cast<size_t>(fits) / 4096 * 4096;
  if (reports()) std::printf("#\n# Reducing maxBytes to %zu due to memory limitation\n", max_bytes_);
}

void Bench::SetUpRanks() {
  const Options& o = run_->options;
  size_t bytes = std::max<size_t>(max_bytes_ + kLargestElement * o.unalign, 64);
  for (LocalRank* rank = ranks_; rank != ranks_ + rank_count_; ++rank) {
    PERF_CALL(axcclHostSetDevice(rank->device));
    if (!o.null_stream) PERF_CALL(axcclStreamCreate(&rank->stream, axcclStreamNonBlocking));
    Allocate(o, bytes, &rank->send);
    Allocate(o, bytes, &rank->recv);
  }
  if (o.registration == Registration::kNone) return;
  PERF_CALL(ncclGroupStart());
  for (LocalRank* rank = ranks_; rank != ranks_ + rank_count_; ++rank) {
    char* buffers[] = {rank->send, rank->recv};
    for (int i = 0; i < 2; ++i) {
      if (o.registration == Registration::kWindow) {
        PERF_CALL(ncclCommWindowRegister(rank->comm, buffers[i], bytes,
                                         reinterpret_cast<ncclWindow_t*>(&rank->registrations[i]),
                                         NCCL_WIN_COLL_SYMMETRIC));
      } else {
        PERF_CALL(ncclCommRegister(rank->comm, buffers[i], bytes, &rank->registrations[i]));
      }
    }
  }
  PERF_CALL(ncclGroupEnd());
}

void Bench::Select(int type, int op, int root) {
  type_ = type;
  op_ = op;
  root_ = root;
  element_bytes_ = ElementBytes(type);
  misalignment_ = run_->options.unalign * element_bytes_;
}

void Bench::SetSize(size_t bytes) {
  counts_ = collective_.counts(bytes / element_bytes_, element_bytes_, run_->data_ranks);
  span_ = std::max(counts_.send, counts_.recv) * element_bytes_;
  if (OnViews()) MakeOperands();
}

void Bench::MakeOperands() {
  const ViewOptions& views = run_->options.views;
  const std::vector<Shape> shapes =
      views.shapes.empty() ? std::vector<Shape>{{static_cast<int64_t>(counts_.send)}} : views.shapes;
  for (bool in_place : {false, true}) {
    operands_[in_place].clear();
    for (size_t i = 0; i < rank_count_; ++i) {
      operands_[in_place].emplace_back(collective_.views.kind, views, shapes, run_->data_ranks, ranks_[i].place,
                                       in_place && HasInPlace());
    }
  }
  const Operands& any = operands_[false][0];
  counts_ = any.counts();
  span_ = std::max(any.send_span(), any.recv_span()) * element_bytes_;
}

// With strides of its own, neither operand is a part of the other.
bool Bench::HasInPlace() const {
  const ViewOptions& views = run_->options.views;
  return collective_.in_place && views.strides.empty() && views.out_strides.empty();
}

// Only calls without a communicator depend on the current device.
void Bench::UseDeviceOf(const LocalRank& rank) const {
  if (rank_count_ > 1) PERF_CALL(axcclHostSetDevice(rank.device));
}

Call Bench::CallOf(const LocalRank& rank, bool in_place, size_t shift) const {
  char* send = rank.send + misalignment_ + shift;
  char* recv = rank.recv + misalignment_ + shift;
  if (in_place && OnViews() && HasInPlace()) {
    send = recv;
  } else if (in_place && HasInPlace()) {
    size_t number = static_cast<size_t>(rank.place) * element_bytes_;
    send = recv + counts_.send_offset * number;
    recv += counts_.recv_offset * number;
  } else if (in_place) {
    std::swap(send, recv);
  }
  return {send,
          recv,
          counts_.argument,
          static_cast<ncclDataType_t>(type_),
          element_bytes_,
          static_cast<ncclRedOp_t>(std::max(op_, 0)),
          {rank.place, run_->data_ranks, root_},
          rank.comm,
          axcclStreamToCuda(rank.stream),
          0};
}

ncclResult_t Bench::RunCall(size_t local, bool in_place, const Call& call) {
  if (!OnViews()) return collective_.run(call);
  const ViewOptions& views = run_->options.views;
  Operands& operands = operands_[in_place][local];
  operands.Aim(call.send, call.recv, type_);
  return collective_.views.run({operands.size(), operands.in(), operands.out(), views.SplitDim(), views.ConcatDim(),
                                call.op, root_, ranks_[local].channel, call.stream});
}

ncclResult_t Bench::RunOne(size_t local, bool in_place, size_t shift, int step) {
  const LocalRank& rank = ranks_[local];
  Call call = CallOf(rank, in_place, shift);
  call.step = step;
  if (op_ != kMulSum) return RunCall(local, in_place, call);
  uint64_t scalar = ScalarBits(type_, rank.place);
  PERF_CALL(ncclRedOpCreatePreMulSum(&call.op, &scalar, call.type, ncclScalarHostImmediate, rank.comm));
  ncclResult_t result = RunCall(local, in_place, call);
  PERF_CALL(ncclRedOpDestroy(call.op, rank.comm));
  return result;
}

// Enqueues one operation on all ranks of the thread. Every iteration uses another part of the buffers, as far as they
// reach, so that a small -b below a large -e does not measure only the first cache.
void Bench::Start(bool in_place, int iteration) {
  size_t places = span_ > 0 ? max_bytes_ / span_ : 1;
  size_t shift = span_ * (static_cast<size_t>(iteration) % std::max<size_t>(places, 1));
  int steps = collective_.steps(run_->data_ranks);
  WatchedWait wait(run_->monitor.get(), thread_);  // a call may wait for its peers, the first one most of all
  for (int step = 0; step < steps; ++step) {
    if (rank_count_ > 1) PERF_CALL(ncclGroupStart());
    for (size_t i = 0; i < rank_count_; ++i) {
      UseDeviceOf(ranks_[i]);
      ncclResult_t result = RunOne(i, in_place, shift, step);
      if (result != ncclSuccess) CheckCall(result, collective_.name);
    }
    if (rank_count_ > 1) PERF_CALL(ncclGroupEnd());
  }
}

void Bench::Synchronize() {
  WatchedWait wait(run_->monitor.get(), thread_);
  for (size_t i = 0; i < rank_count_; ++i) {
    UseDeviceOf(ranks_[i]);
    PERF_CALL(axcclStreamSynchronize(ranks_[i].stream));
  }
}

void Bench::Warmup() {
  for (int i = 0; i < run_->options.warmup; ++i) Start(false, i);
  Synchronize();
}

Bench::Timing Bench::TimeLoop(bool in_place) {
  const Options& o = run_->options;
  const bool outer_wait = o.blocking == Blocking::kOuterBarrier || o.per_iteration;
  const bool inner_wait = o.blocking == Blocking::kInner || o.blocking == Blocking::kInnerBarrier;
  // Operations of several dependent groups cannot be merged into one.
  const bool grouped = o.aggregate > 1 && collective_.steps(run_->data_ranks) == 1;
  Timing timing{0, 0, {}};
  double counted = 0;  // under outer waits, only the time between the barriers counts
  double start = Seconds();
  for (int iteration = 0; iteration < o.iterations; ++iteration) {
    double iteration_start = outer_wait ? Seconds() : 0;
    if (grouped) PERF_CALL(ncclGroupStart());
    for (int i = 0; i < o.aggregate; ++i) {
      Start(in_place, iteration * o.aggregate + i);
      if (inner_wait && !grouped) Synchronize();
      if (o.blocking == Blocking::kInnerBarrier && !grouped) exchange_->Barrier();
    }
    if (grouped) PERF_CALL(ncclGroupEnd());
    if (inner_wait && grouped) Synchronize();
    if (!outer_wait) continue;
    Synchronize();
    double lasted = Seconds() - iteration_start;
    counted += lasted;
    if (o.per_iteration) timing.iterations.push_back(lasted / o.aggregate);
    if (o.blocking == Blocking::kOuterBarrier) exchange_->Barrier();
  }
  double enqueued = Seconds() - start;
  if (!inner_wait && !outer_wait) Synchronize();
  double operations = static_cast<double>(o.iterations) * o.aggregate;
  timing.cpu_seconds = (outer_wait ? counted : enqueued) / operations;
  timing.seconds = (outer_wait ? counted : Seconds() - start) / operations;
  return timing;
}

void Bench::FillBuffers(bool in_place, uint64_t rep) {
  for (size_t i = 0; i < rank_count_; ++i) {
    const LocalRank& rank = ranks_[i];
    Call call = CallOf(rank, in_place, 0);
    char* stale = (in_place && !HasInPlace() ? rank.send : rank.recv) + misalignment_;
    std::memset(stale, kStale, span_);
    Sequence sequence{type_, collective_.reduces ? op_ : kMove, RepOf(rank, rep), run_->data_ranks, rank.place};
    if (!OnViews()) {
      FillSequence(sequence, 0, counts_.send, const_cast<char*>(call.send));
      continue;
    }
    operands_[in_place][i].Aim(call.send, call.recv, type_);
    operands_[in_place][i].Fill(sequence);
  }
}

uint64_t Bench::CountWrongHere(bool in_place) const {
  uint64_t wrong = 0;
  for (size_t i = 0; i < rank_count_; ++i) {
    Call call = CallOf(ranks_[i], in_place, 0);
    std::vector<Segment> segments = collective_.expected(counts_, call.at);
    if (OnViews() && !segments.empty()) {  // ranks that receive
      Sequence sequence{type_, collective_.reduces ? op_ : kMove, RepOf(ranks_[i], rep_), run_->data_ranks, 0};
      wrong += operands_[in_place][i].CountWrongOutputs(sequence, root_);
      continue;
    }
    for (const Segment& segment : segments) {
      Sequence sequence{type_, collective_.reduces ? op_ : kMove, RepOf(ranks_[i], rep_), run_->data_ranks,
                        segment.source};
      wrong += CountWrong(sequence, segment.source_first, segment.count, call.recv + segment.begin * element_bytes_);
    }
  }
  return wrong;
}

// Runs checked operations until one is wrong; returns the wrong elements of all ranks.
uint64_t Bench::Check(bool in_place) {
  const bool counts = !in_place || HasInPlace();
  for (int i = 0; i < run_->options.checks; ++i) {
    ++rep_;
    FillBuffers(in_place, rep_);
    exchange_->Barrier();  // a peer may write into these buffers as soon as it starts
    Start(in_place, 0);
    Synchronize();
    uint64_t here = counts ? CountWrongHere(in_place) : 0;
    failed_checks_ += static_cast<int>(exchange_->Sum(here > 0 ? 1 : 0));
    uint64_t wrong = exchange_->Sum(here);
    if (wrong > 0) return wrong;
  }
  return 0;
}

Measurement Bench::Measure(bool in_place, IterationReport* iterations) {
  const Options& o = run_->options;
  auto phase = [this](const char* name) {
    if (thread_ == 0) run_->monitor->Describe(std::max(counts_.send, counts_.recv) * element_bytes_, name);
  };
  phase(in_place ? "timing in place" : "timing out of place");
  if (o.checks > 0) FillBuffers(in_place, kTimingRep);
  exchange_->Barrier();
  Start(in_place, 0);
  Synchronize();
  exchange_->Barrier();
  Timing timing = TimeLoop(in_place);
  double seconds = exchange_->Combine(timing.seconds, o.average);
  double cpu_seconds = exchange_->Combine(timing.cpu_seconds, o.average);
  if (o.per_iteration) CollectIterations(timing, iterations);

  Measurement m;
  m.alg_bw = collective_.bytes(counts_.argument, element_bytes_, run_->data_ranks) / 1e9 / seconds;
  m.bus_bw = m.alg_bw * collective_.bus_factor(run_->data_ranks);
  m.seconds = o.report_cpu_time ? cpu_seconds : seconds;
  m.checked = o.checks > 0 && (!in_place || HasInPlace());
  phase("checking");
  m.wrong = Check(in_place);
  return m;
}

void Bench::CollectIterations(const Timing& timing, IterationReport* report) {
  std::vector<std::vector<double>> rows = exchange_->AllGatherRows(timing.iterations);
  size_t processes = static_cast<size_t>(run_->world.processes);
  size_t threads = rows.size() / processes;
  report->seconds.assign(timing.iterations.size(), 0);
  report->process_rows.assign(processes, report->seconds);
  for (size_t t = 0; t < rows.size(); ++t) {
    for (size_t i = 0; i < rows[t].size(); ++i) {
      double& of_process = report->process_rows[t / threads][i];
      of_process = std::max(of_process, rows[t][i]);
      report->seconds[i] = std::max(report->seconds[i], of_process);
    }
  }
  if (processes == 1) report->process_rows.clear();
}

}  // namespace axccl::perf
