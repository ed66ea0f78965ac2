// From calls to kernels: which tasks go into one launch, and how it is ordered with the streams on which they were
// enqueued.
#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "src/base/add_once.h"
#include "src/exec/cuda/flat_call.h"
#include "src/exec/cuda/interpreter.h"
#include "src/exec/cuda/pointers.h"
#include "src/exec/cuda/rank.h"
#include "src/exec/cuda/views.h"

namespace axccl::exec {
namespace {

using device::cuda::Check;
using device::cuda::Current;
using device::cuda::Device;
using device::cuda::Driver;
namespace cuda = kernels::cuda;

// What a strand moves, in the places of its rows if it has some.
uint64_t BytesOfStrand(const cuda::Task& task) {
  if (task.small.does != 0 && !task.small.InRows()) return task.small.items() * 16;
  const plan::Partition& cut = task.cut.partition;
  uint32_t lanes = cut.lanes;  // the least of all programs
  if (task.staged != nullptr) lanes = std::min(lanes, task.staged_cut.partition.lanes);
  if (task.grown != nullptr) lanes = std::min(lanes, task.grown_cut.partition.lanes);
  const uint64_t bytes = cut.count * ElementSize(task.type) / lanes;
  if (task.cut.packing != cuda::Packing::kRows) return bytes;
  // Not so many that the launch gets a ring for copies.
  const bool of_all = (task.small.does & (cuda::Small::kGathers | cuda::Small::kForEach)) != 0;
  const uint64_t rows = (of_all ? task.small.ranks : 1) * cuda::StoredRows(bytes);
  return std::min<uint64_t>(rows * cuda::kRowPlaces, cuda::kMaxThreads) * 16;
}

// The calls of a group on one device.
class DeviceLaunch {
 public:
  explicit DeviceLaunch(const Device* device) : device_(device) {}

  void Add(const StreamCall& call) {
    calls_.push_back(WaitsForCopy(call) ? &on_views_.emplace_back(OnView(call)) : &call);
    AddOnce(&ranks_, static_cast<CudaRank*>(call.device));
    AddOnce(&orders_, CudaOrders::Place{&static_cast<CudaRank*>(call.device)->orders(), call.channel->order().get()});
    AddOnce(&streams_, static_cast<CUstream>(call.stream.cuda));
  }

  // Any of the ranks on the device.
  const CudaRank* rank() const { return ranks_[0]; }

  // All that may take memory from the driver, which may wait for all kernels, on whichever device. Asks the driver for
  // nothing if all calls were made before.
  Status Prepare() {
    capture_ = calls_[0]->capture;
    AXCCL_RETURN_IF_ERROR(FindFlatCalls());
    AXCCL_RETURN_IF_ERROR(LendTables());
    AXCCL_RETURN_IF_ERROR(MakeWaves());
    AXCCL_RETURN_IF_ERROR(AddLocalCalls());
    for (Wave& wave : waves_) AXCCL_RETURN_IF_ERROR(LendTasks(&wave));
    return Status();
  }

  // The first stream does the work; it waits for the others first, and they wait for it afterwards.
  Status Enqueue() {
    std::optional<Current> current;
    if (!IsBareLaunch()) current.emplace(*device_);
    const OrderedStream first{streams_[0], capture_, calls_[0]->stream_id};
    AXCCL_RETURN_IF_ERROR(Join(first));
    if (table_bytes_ != 0) AXCCL_RETURN_IF_ERROR(Send(tables_, table_bytes_));
    for (const Wave& wave : waves_) {
      for (const Plane& plane : wave.copies) AXCCL_RETURN_IF_ERROR(CopyPlane(plane, streams_[0]));
      AXCCL_RETURN_IF_ERROR(Run(wave));
    }
    if (table_bytes_ != 0) AXCCL_RETURN_IF_ERROR(ranks_[0]->loans().Return(tables_, streams_[0], capture_ != 0));
    for (const StreamCall* call : calls_) {
      if (IsPlainCopy(*call)) AXCCL_RETURN_IF_ERROR(Copy(call->call));
    }
    AXCCL_ASSIGN_OR_RETURN(const CUevent end, CudaOrders::Launched(orders_, first));
    for (size_t i = 1; i < streams_.size(); ++i)
      AXCCL_RETURN_IF_CUDA_ERROR(Driver::Loaded().cuStreamWaitEvent(streams_[i], end, 0));
    return Status();
  }

 private:
  // Calls that run side by side, in one launch.
  struct Wave {
    std::vector<Plane> copies;  // before that
    std::vector<cuda::Task> tasks;
    uint32_t lanes = 1;       // of a task
    uint64_t most_bytes = 0;  // of a strand
    Lent lent;                // for tasks that the parameters have no room for
  };
  static bool IsPlainCopy(const StreamCall& call) { return call.local && call.call.views == nullptr; }
  static bool MovesNothing(const Call& call) { return call.count == 0 || call.input == call.output; }
  // Whether the driver may return from the copy only when the stream has made it: the stream may wait for a kernel that
  // waits for what this thread launches next. Then a kernel copies.
  bool WaitsForCopy(const StreamCall& call) const {
    return IsPlainCopy(call) && !MovesNothing(call.call) &&
           !(IsOnDevice(*device_, call.call.input) && IsOnDevice(*device_, call.call.output));
  }
  static StreamCall OnView(const StreamCall& call) {
    StreamCall on_view = call;
    on_view.call = exec::OnView(call.call);
    return on_view;
  }
  static size_t TableBytes(const StreamCall& call) {
    return call.call.views == nullptr ? 0 : RoundUp(CudaViewTableBytes(*call.call.views), kCacheLine);
  }

  // Whether one kernel is all that is enqueued, and the handle of its stream means the same in every context.
  bool IsBareLaunch() const {
    return calls_.size() == 1 && waves_.size() == 1 && table_bytes_ == 0 && capture_ == 0 &&
           !device::cuda::IsOfCurrentContext(streams_[0]);
  }

  // A FlatCall, and where its copies are behind the tables.
  struct Flat {
    FlatCall call;
    size_t copies_at;
  };
  // Their local calls have a table each.
  static constexpr size_t kLocalTableBytes = RoundUp(sizeof(cuda::ViewTable) + sizeof(cuda::ViewOperand), kCacheLine);

  Status FindFlatCalls() {
    for (const StreamCall* call : calls_) {
      if (call->local || call->call.views == nullptr) continue;
      AXCCL_ASSIGN_OR_RETURN(CudaChannel * channel, ChannelOf(*call));
      AXCCL_ASSIGN_OR_RETURN(const bool is_flat, channel->IsFlat(call->call));
      if (!is_flat) continue;
      const FlatCall flat(call->call, call->channel->size(), call->channel->self());
      if (flat.local_calls() != 0) AXCCL_RETURN_IF_ERROR(SelfOf(*call).status());
      flat_.emplace(call, Flat{flat, copy_bytes_});
      copy_bytes_ += flat.bytes();
    }
    return Status();
  }

  // Lends memory for the tables of all calls on views, in their order, and for what flat calls need.
  Status LendTables() {
    for (const StreamCall* call : calls_) {
      if (flat_.count(call) == 0) table_bytes_ += TableBytes(*call);
    }
    local_tables_at_ = table_bytes_;
    for (const auto& [call, flat] : flat_) table_bytes_ += flat.call.local_calls() * kLocalTableBytes;
    if (table_bytes_ == 0) return Status();
    AXCCL_ASSIGN_OR_RETURN(tables_, ranks_[0]->loans().Lend(table_bytes_ + copy_bytes_));
    return Status();
  }
  FlatCall::Steps StepsOf(const Flat& flat) const {
    return flat.call.On(tables_.on_device + table_bytes_ + flat.copies_at);
  }
  Status Send(const Lent& lent, size_t bytes) {
    return Check(Driver::Loaded().cuMemcpyHtoDAsync(lent.on_device, lent.memory, bytes, streams_[0]),
                 "cuMemcpyHtoDAsync");
  }

  // Calls on different channels run side by side, calls on one channel one after the other.
  //
  // If copy engines make some, a launch ends before their copies begin. Then calls of different communicators, and
  // those that copy engines make and others, are in waves of their own, in the order of the program: as in NCCL, a rank
  // may make them in a group and another one by one.
  Status MakeWaves() {
    std::map<const CudaChannel*, size_t> made;
    std::map<std::tuple<uint64_t, bool, size_t>, size_t> known;  // waves, if there are copies
    const std::map<const StreamCall*, CopiedCall> copied = CopiedCalls();
    size_t tables = 0;  // of the tables made so far
    for (const StreamCall* call : calls_) {
      if (IsPlainCopy(*call)) continue;
      auto* rank = static_cast<CudaRank*>(call->device);
      AXCCL_ASSIGN_OR_RETURN(CudaChannel * channel, ChannelOf(*call));
      size_t wave = made[channel]++;
      const auto by_copies = copied.find(call);
      const bool copies = by_copies != copied.end();
      if (!copied.empty()) wave = known.try_emplace({rank->links().key(), copies, wave}, waves_.size()).first->second;
      const size_t stages = copies ? by_copies->second.stages.size() : 1;
      if (waves_.size() < wave + stages) waves_.resize(wave + stages);
      if (copies) {
        AXCCL_RETURN_IF_ERROR(AddStages(*call, by_copies->second, channel, &waves_[wave]));
        continue;
      }
      if (PlaceOf(*call) == CudaPlace::kCreated) AXCCL_RETURN_IF_ERROR(channel->Meet().status());
      if (const auto flat = flat_.find(call); flat != flat_.end()) {
        AXCCL_RETURN_IF_ERROR(
            AddTask(channel->MakeTask(StepsOf(flat->second).call, {}, capture_ != 0, &call->call), &waves_[wave]));
        continue;
      }
      AXCCL_RETURN_IF_ERROR(AddTask(channel->MakeTask(call->call, tables_.At(tables), capture_ != 0), &waves_[wave]));
      tables += TableBytes(*call);
    }
    return Status();
  }
  Status AddTask(const Result<cuda::Task>& made, Wave* wave) {
    AXCCL_ASSIGN_OR_RETURN(const cuda::Task task, made);
    wave->tasks.push_back(task);
    wave->lanes = std::max(wave->lanes, task.MostLanes());
    wave->most_bytes = std::max(wave->most_bytes, BytesOfStrand(task));
    return Status();
  }

  // The local calls of flat ones, before and after all other calls: calls of a group do not depend on each other.
  Status AddLocalCalls() {
    if (table_bytes_ == local_tables_at_) return Status();
    std::map<const CudaChannel*, size_t> made_before, made_after;
    std::vector<Wave> before, after;
    size_t table = local_tables_at_;
    const auto add = [&](CudaChannel* self, const Call& local, size_t wave, std::vector<Wave>* waves) {
      if (waves->size() <= wave) waves->resize(wave + 1);
      const Lent lent = tables_.At(std::exchange(table, table + kLocalTableBytes));
      return AddTask(self->MakeTask(local, lent, capture_ != 0), &(*waves)[wave]);
    };
    for (const StreamCall* call : calls_) {
      const auto flat = flat_.find(call);
      if (flat == flat_.end()) continue;
      const FlatCall::Steps steps = StepsOf(flat->second);
      AXCCL_ASSIGN_OR_RETURN(CudaChannel* const self, SelfOf(*call));
      if (steps.before) AXCCL_RETURN_IF_ERROR(add(self, *steps.before, made_before[self]++, &before));
      if (steps.after) AXCCL_RETURN_IF_ERROR(add(self, *steps.after, made_after[self]++, &after));
    }
    waves_.insert(waves_.begin(), std::make_move_iterator(before.begin()), std::make_move_iterator(before.end()));
    std::move(after.begin(), after.end(), std::back_inserter(waves_));
    return Status();
  }
  static Result<CudaChannel*> ChannelOf(const StreamCall& call) {
    return static_cast<CudaRank*>(call.device)->ChannelOf(call.channel, PlaceOf(call));
  }
  static Result<CudaChannel*> SelfOf(const StreamCall& call) {
    return static_cast<CudaRank*>(call.device)->ChannelOf(call.channel, CudaPlace::kSelf);
  }

  // What copy engines make of these.
  std::map<const StreamCall*, CopiedCall> CopiedCalls() const {
    std::map<const StreamCall*, CopiedCall> copied;
    for (const StreamCall* call : calls_) {
      if (PlaceOf(*call) != CudaPlace::kDefault) continue;
      auto* const rank = static_cast<CudaRank*>(call->device);
      std::optional<CopiedCall> found = rank->CopiedFor(call->call);
      if (!found) continue;
      rank->Keep(*found, capture_ != 0);
      copied.emplace(call, *std::move(found));
    }
    return copied;
  }

  // Barriers have one lane, and the least threads.
  Status AddStages(const StreamCall& call, const CopiedCall& copied, CudaChannel* channel, Wave* waves) const {
    for (size_t s = 0; s < copied.stages.size(); ++s) {
      const std::vector<Plane>& copies = copied.stages[s];
      waves[s].copies.insert(waves[s].copies.end(), copies.begin(), copies.end());
      const uint32_t signature = copied.signature + static_cast<uint32_t>(s);
      AXCCL_ASSIGN_OR_RETURN(const cuda::Task task, channel->MakeStageTask(call.call, signature, capture_ != 0));
      waves[s].tasks.push_back(task);
    }
    return Status();
  }

  Status LendTasks(Wave* wave) {
    if (wave->tasks.size() <= cuda::kMaxTasks) return Status();
    const size_t bytes = wave->tasks.size() * sizeof(cuda::Task);
    AXCCL_ASSIGN_OR_RETURN(wave->lent, ranks_[0]->loans().Lend(bytes));
    return Status();
  }

  // A wait refers to the last record, so one event serves all streams.
  Status Join(const OrderedStream& first) {
    AXCCL_RETURN_IF_ERROR(CudaOrders::Follow(orders_, first));
    const Driver& driver = Driver::Loaded();
    for (size_t i = 1; i < streams_.size(); ++i) {
      AXCCL_ASSIGN_OR_RETURN(const CUevent event, ranks_[0]->orders().OrderingEvent());
      AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventRecord(event, streams_[i]));
      AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamWaitEvent(first.stream, event, 0));
    }
    return Status();
  }

  Status Run(const Wave& wave) {
    const std::vector<cuda::Task>& tasks = wave.tasks;
    AXCCL_ASSIGN_OR_RETURN(const CudaInterpreter* interpreter, CudaInterpreter::Of(*device_));
    cuda::Launch launch;
    launch.num_tasks = static_cast<uint32_t>(tasks.size());
    launch.lanes = wave.lanes;
    if (wave.lent.memory != nullptr) {
      launch.more = reinterpret_cast<const cuda::Task*>(wave.lent.on_device);
      std::copy(tasks.begin(), tasks.end(), reinterpret_cast<cuda::Task*>(wave.lent.memory));
      AXCCL_RETURN_IF_ERROR(Send(wave.lent, tasks.size() * sizeof(cuda::Task)));
    } else {
      std::copy(tasks.begin(), tasks.end(), launch.tasks);
    }
    const bool created =
        std::all_of(calls_.begin(), calls_.end(), [](const StreamCall* call) { return IsCreated(*call->channel); });
    const uint64_t share = ranks_[0]->ShareOf(interpreter->resident_blocks(), ranks_.size(), created);
    const uint64_t strands = tasks.size() * uint64_t{launch.lanes};
    if (strands > share * cuda::kMaxStrands)
      return MakeStatus(Code::kInvalidUsage,
                        "%zu calls of one group on CUDA device %d need %llu blocks at a time, and their ranks "
                        "have room for %llu; use more groups",
                        tasks.size(), device_->ordinal(),
                        static_cast<unsigned long long>(strands / cuda::kMaxStrands + 1),
                        static_cast<unsigned long long>(share));
    uint64_t most = 0;  // as configured
    for (const CudaRank* rank : ranks_) most += rank->most_blocks();
    const auto blocks = static_cast<unsigned>(std::clamp<uint64_t>(strands, 1, std::min(share, most)));
    AXCCL_RETURN_IF_ERROR(interpreter->Launch(&launch, blocks, wave.most_bytes, streams_[0]));
    return launch.more != nullptr ? ranks_[0]->loans().Return(wave.lent, streams_[0], capture_ != 0) : Status();
  }

  Status Copy(const Call& call) {
    const uint64_t bytes = call.count * ElementSize(call.type);
    if (MovesNothing(call)) return Status();
    return Check(Driver::Loaded().cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(call.output),
                                                reinterpret_cast<CUdeviceptr>(call.input), bytes, streams_[0]),
                 "cuMemcpyAsync");
  }

  const Device* const device_;
  std::vector<const StreamCall*> calls_;
  std::deque<StreamCall> on_views_;  // of calls_
  std::vector<CudaRank*> ranks_;
  std::vector<CudaOrders::Place> orders_;
  std::vector<CUstream> streams_;
  std::vector<Wave> waves_;
  std::map<const StreamCall*, Flat> flat_;
  // For operands of calls on views, then of the local calls of flat ones; behind these are their copies, on the device.
  Lent tables_;
  size_t table_bytes_ = 0, local_tables_at_ = 0, copy_bytes_ = 0;
  uint64_t capture_ = 0;  // of all calls
};

}  // namespace

Status LaunchOnGpus(const std::vector<StreamCall>& calls) {
  std::map<const Device*, DeviceLaunch> launches;
  std::vector<CudaRank*> ranks;
  for (const StreamCall& call : calls) {
    auto* rank = static_cast<CudaRank*>(call.device);
    launches.try_emplace(rank->device(), rank->device()).first->second.Add(call);
    AddOnce(&ranks, rank);
  }
  // In a fixed order, so that two threads with common ranks do not deadlock.
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::unique_lock<std::mutex>> locks;
  for (CudaRank* rank : ranks) locks.emplace_back(rank->launching());
  // A kernel waits for those of other devices, so all are prepared before the first of them runs.
  for (const auto step : {&DeviceLaunch::Prepare, &DeviceLaunch::Enqueue}) {
    for (auto& [device, launch] : launches) {
      const Status status = (launch.*step)();
      if (status.ok()) continue;
      // Reports an error of an earlier kernel first, whichever call of the driver would return it.
      AXCCL_RETURN_IF_ERROR(launch.rank()->CheckDevice());
      return status;
    }
  }
  if (std::any_of(ranks.begin(), ranks.end(), [](const CudaRank* rank) { return rank->links().proxy() != nullptr; }))
    CudaProxy::Wake();
  return Status();
}

}  // namespace axccl::exec
