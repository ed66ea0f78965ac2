#include "backend.h"

#include <ATen/ATen.h>

#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "meeting.h"

namespace axccl::torch {
namespace {

using c10d::OpType;

ncclResult_t WaitForStream(void* stream, double seconds) {
  return axcclStreamSynchronizeFor(static_cast<axcclStream_t>(stream), seconds);
}

void CheckOne(const char* call, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "axccl: ", call, ": ", tensors.size(),
                    " tensors for this rank; pass one (a rank is one device)");
}

void CheckList(const char* call, const char* what, const std::vector<std::vector<at::Tensor>>& lists, int size) {
  TORCH_CHECK_VALUE(lists.size() == 1 && lists[0].size() == static_cast<size_t>(size), "axccl: ", call, ": ", what,
                    " has ", lists.empty() ? 0 : lists[0].size(), " tensors; pass one for each of the ", size,
                    " ranks");
}

void CheckRank(const char* call, const char* what, int64_t rank, int size) {
  TORCH_CHECK_VALUE(rank >= 0 && rank < size, "axccl: ", call, ": ", what, " is ", rank,
                    "; pass a rank of the group (0..", size - 1, ")");
}

void CheckSameType(const char* call, const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK_TYPE(a.scalar_type() == b.scalar_type(), "axccl: ", call, ": input is ", a.scalar_type(),
                   " and output is ", b.scalar_type(), "; they must agree");
}

void CheckMultiple(const char* call, const at::Tensor& large, const at::Tensor& small, int size) {
  CheckSameType(call, large, small);
  TORCH_CHECK_VALUE(large.numel() == small.numel() * size, "axccl: ", call, ": one side has ", large.numel(),
                    " elements and the other ", small.numel(), "; the former must be ", size, " times the latter");
}

size_t Elements(const axcclView_t& dense) { return static_cast<size_t>(*dense.sizes); }

// The backend of a communicator that was made from another one.
c10::intrusive_ptr<AxcclBackend> OfPart(const char* call, ncclComm_t comm, AxcclBackend::Milliseconds timeout,
                                        const std::string& name) {
  int rank = 0, size = 0;
  Check(ncclCommUserRank(comm, &rank), call, comm);
  Check(ncclCommCount(comm, &size), call, comm);
  return c10::make_intrusive<AxcclBackend>(comm, rank, size, timeout, name);
}

}  // namespace

AxcclBackend::AxcclBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, Milliseconds timeout,
                           std::string name)
    : AxcclBackend(Meet(store.get(), rank, size, name, timeout), rank, size, timeout, name) {}

AxcclBackend::AxcclBackend(ncclComm_t comm, int rank, int size, Milliseconds timeout, std::string name)
    : Backend(rank, size), name_(std::move(name)), group_(std::make_shared<Group>(comm)) {
  setTimeout(timeout);
  stream_ = group_->AddStream("init");
}

AxcclBackend::~AxcclBackend() { (void)group_->Close(false); }

void AxcclBackend::shutdown() { (void)group_->Close(false, true); }

void AxcclBackend::abort() { (void)group_->Close(true); }

c10d::ErrorType AxcclBackend::getError() {
  ncclResult_t state = ncclSuccess;
  if (group_->closed() || ncclCommGetAsyncError(group_->comm(), &state) != ncclSuccess)
    return c10d::ErrorType::COMM_ERROR;
  switch (state) {
    case ncclSuccess:
    case ncclInProgress:
      return c10d::ErrorType::SUCCESS;
    case ncclTimeout:
      return c10d::ErrorType::TIMEOUT;
    case ncclRemoteError:
      return c10d::ErrorType::REMOTE_ERROR;
    default:
      return c10d::ErrorType::COMM_ERROR;
  }
}

void AxcclBackend::setTimeout(Milliseconds timeout) {
  CheckOpen("set_timeout");
  Check(axcclCommSetTimeout(group_->comm(), std::chrono::duration<double>(timeout).count()), "set_timeout",
        group_->comm());
  timeout_ = timeout;
}

c10::intrusive_ptr<c10d::Backend> AxcclBackend::shrink(const std::vector<int64_t>& excluded, int flags,
                                                       const c10::intrusive_ptr<Options>& /*options*/) {
  const char* const call = "shrink_group";
  CheckOpen(call);
  std::vector<int> ranks(excluded.begin(), excluded.end());
  ncclConfig_t config = ConfigOf(name_);
  ncclComm_t comm = nullptr;
  Check(ncclCommShrink(group_->comm(), ranks.data(), static_cast<int>(ranks.size()), &comm, &config, flags), call,
        group_->comm());
  return OfPart(call, Made(call, comm, name_, timeout_), timeout_, name_);
}

#ifdef AXCCL_TORCH_SPLITS
c10::intrusive_ptr<c10d::Backend> AxcclBackend::split(const c10::intrusive_ptr<c10d::Store>& /*store*/,
                                                      const std::vector<int>& ranks,
                                                      const c10::intrusive_ptr<Options>& options) {
  CheckOpen("split_group");
  const std::string name = options == nullptr ? name_ : options->group_name;
  const Milliseconds timeout = options == nullptr ? timeout_ : options->timeout;
  ncclComm_t const comm = Split(group_->comm(), ranks, name, timeout);
  if (comm == nullptr) return nullptr;
  return OfPart("split_group", comm, timeout, name);
}

c10::intrusive_ptr<c10d::Backend::Options> AxcclBackend::getBackendOptions() {
  return c10::make_intrusive<Options>(getBackendName(), timeout_);
}
#endif

at::Tensor AxcclBackend::allocateTensor(long size, at::TensorOptions options) {
  const size_t bytes = static_cast<size_t>(size) * options.dtype().itemsize();
  void* memory = nullptr;
  Check(ncclMemAlloc(&memory, std::max<size_t>(bytes, 1)), "allocate_tensor");
  return at::from_blob(
      memory, {size}, [](void* p) { (void)ncclMemFree(p); }, options.device(at::kCPU));
}

// ---- the way of a call ----

void AxcclBackend::CheckOpen(const char* call) const {
  if (!group_->closed()) return;
  C10_THROW_ERROR(DistBackendError,
                  std::string("axccl: ") + call + ": the group was aborted or destroyed; make a new one");
}

AxcclBackend::WorkPtr AxcclBackend::Finished(const char* call, OpType type, axcclStream_t stream, Operands operands,
                                             Tensors outputs, Milliseconds timeout) {
  const ncclResult_t result = WaitLikePython(group_.get(), call, kNoTimeout, WaitForStream, stream);
  Check(result, call, group_->comm());
  Check(group_->Error(), call, group_->comm());  // another thread may have got the stream's error
  CopyBack(operands.copies);
  return c10::make_intrusive<AxcclWork>(rank_, type, call, std::move(outputs));
}

AxcclBackend::Launch AxcclBackend::LaunchOn(axcclStream_t stream, Milliseconds timeout) const {
  Launch with{AXCCL_OPTIONS_INITIALIZER, axcclDefaultChannel(group_->comm()), axcclStreamToCuda(stream),
              group_->comm()};
  if (timeout.count() > 0) with.options.timeout = std::chrono::duration<double>(timeout).count();
  return with;
}

void AxcclBackend::Coalesce(Operands operands, Tensors outputs, std::function<ncclResult_t()> launch) {
  coalesced_.operands.Take(std::move(operands));
  coalesced_.outputs.insert(coalesced_.outputs.end(), outputs.begin(), outputs.end());
  coalesced_.launches.push_back(std::move(launch));
}

template <class Function>
AxcclBackend::WorkPtr AxcclBackend::Run(const char* call, OpType type, Operands operands, Tensors outputs,
                                        Milliseconds timeout, bool async, const Function& launch) {
  CheckOpen(call);
  const Launch with = LaunchOn(stream_, timeout);
  ++sequence_;
  if (coalescing_) {
    Coalesce(std::move(operands), std::move(outputs), [launch, with] { return launch(with); });
    return nullptr;
  }
  Check(launch(with), call, group_->comm());
  if (!async) return Finished(call, type, stream_, std::move(operands), std::move(outputs), timeout);
  return c10::make_intrusive<AxcclWork>(group_, rank_, type, call, stream_, std::move(operands), std::move(outputs));
}

void AxcclBackend::startCoalescing() {
  CheckOpen("coalescing");
  coalesced_ = Coalesced();  // what an exception has left
  coalescing_ = true;
}

AxcclBackend::WorkPtr AxcclBackend::endCoalescing() {
  coalescing_ = false;
  Coalesced calls = std::exchange(coalesced_, Coalesced());
  if (calls.failure != nullptr) std::rethrow_exception(calls.failure);
  CheckOpen("coalesced calls");
  Check(ncclGroupStart(), "coalesced calls");
  ncclResult_t result = ncclSuccess;
  for (size_t i = 0; i < calls.launches.size() && result == ncclSuccess; ++i) result = calls.launches[i]();
  const ncclResult_t ended = ncclGroupEnd();
  Check(result != ncclSuccess ? result : ended, "coalesced calls", group_->comm());
  return c10::make_intrusive<AxcclWork>(group_, rank_, OpType::COALESCED, "coalesced calls", stream_,
                                        std::move(calls.operands), std::move(calls.outputs));
}

// ---- reductions ----

AxcclBackend::WorkPtr AxcclBackend::Reduce(const char* call, OpType type, Tensors& tensors,
                                           const c10d::AllreduceOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "axccl: ", call, ": no tensors; pass one or more");
  const auto reduction = std::make_shared<const Reduction>(call, options.reduceOp, tensors[0], group_->comm());
  Operands operands(call);
  const std::vector<axcclView_t> views = operands.Views(tensors, &Operands::Both);
  return Run(call, type, std::move(operands), tensors, options.timeout, options.asyncOp, [=](const Launch& with) {
    const axcclView_t& first = views[0];
    if (views.size() == 1 && with.plain())
      return ncclAllReduce(first.data, first.data, Elements(first), first.datatype, reduction->op(), with.comm,
                           with.stream);
    return axcclAllReduce(static_cast<int>(views.size()), views.data(), views.data(), reduction->op(), with.channel,
                          &with.options, with.stream);
  });
}

AxcclBackend::WorkPtr AxcclBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  CheckOne("all_reduce", tensors);
  return Reduce("all_reduce", OpType::ALLREDUCE, tensors, options);
}

AxcclBackend::WorkPtr AxcclBackend::allreduce_coalesced(Tensors& tensors,
                                                        const c10d::AllreduceCoalescedOptions& options) {
  return Reduce("all_reduce_coalesced", OpType::ALLREDUCE_COALESCED, tensors, options);
}

AxcclBackend::WorkPtr AxcclBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  CheckOne("reduce", tensors);
  const auto root = static_cast<int>(options.rootRank);
  CheckRank("reduce", "dst", root, size_);
  const auto reduction = std::make_shared<const Reduction>("reduce", options.reduceOp, tensors[0], group_->comm());
  // Only the root's tensor is written.
  Operands operands("reduce");
  const axcclView_t view = operands.View(rank_ == root ? operands.Both(tensors[0]) : operands.Input(tensors[0]));
  return Run("reduce", OpType::REDUCE, std::move(operands), tensors, options.timeout, options.asyncOp,
             [=](const Launch& with) {
               return axcclReduce(1, &view, rank_ == root ? &view : nullptr, reduction->op(), root, with.channel,
                                  &with.options, with.stream);
             });
}

AxcclBackend::WorkPtr AxcclBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                         const c10d::ReduceScatterOptions& options) {
  const char* const call = "reduce_scatter_tensor";
  CheckMultiple(call, input, output, size_);
  const auto reduction = std::make_shared<const Reduction>(call, options.reduceOp, input, group_->comm());
  Operands operands(call);
  const axcclView_t from = operands.View(operands.Input(input)), to = operands.View(operands.Output(output));
  return Run(call, OpType::_REDUCE_SCATTER_BASE, std::move(operands), {output}, options.timeout, options.asyncOp,
             [=](const Launch& with) {
               if (with.plain())
                 return ncclReduceScatter(from.data, to.data, Elements(to), to.datatype, reduction->op(), with.comm,
                                          with.stream);
               return axcclReduceScatter(1, &from, &to, 0, reduction->op(), with.channel, &with.options, with.stream);
             });
}

AxcclBackend::WorkPtr AxcclBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                    const c10d::ReduceScatterOptions& options) {
  const char* const call = "reduce_scatter_tensor_coalesced";
  TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(), "axccl: ", call, ": ", inputs.size(),
                    " inputs and ", outputs.size(), " outputs; pass as many of each");
  for (size_t i = 0; i < inputs.size(); ++i) CheckMultiple(call, inputs[i], outputs[i], size_);
  const auto reduction = std::make_shared<const Reduction>(call, options.reduceOp, inputs[0], group_->comm());
  Operands operands(call);
  const std::vector<axcclView_t> from = operands.Views(inputs, &Operands::Input);
  const std::vector<axcclView_t> to = operands.Views(outputs, &Operands::Output);
  return Run(call, OpType::COALESCED, std::move(operands), outputs, options.timeout, options.asyncOp,
             [=](const Launch& with) {
               return axcclReduceScatter(static_cast<int>(from.size()), from.data(), to.data(), 0, reduction->op(),
                                         with.channel, &with.options, with.stream);
             });
}

AxcclBackend::WorkPtr AxcclBackend::reduce_scatter(Tensors& outputs, Lists& inputs,
                                                   const c10d::ReduceScatterOptions& options) {
  const char* const call = "reduce_scatter";
  CheckOne(call, outputs);
  CheckList(call, "the input list", inputs, size_);
  const auto reduction = std::make_shared<const Reduction>(call, options.reduceOp, outputs[0], group_->comm());
  Operands operands(call);
  const std::vector<axcclView_t> from = operands.Views(inputs[0], &Operands::Input);
  const axcclView_t to = operands.View(operands.Output(outputs[0]));
  return Run(call, OpType::REDUCE_SCATTER, std::move(operands), outputs, options.timeout, options.asyncOp,
             [=](const Launch& with) {
               return axcclReduceScatterList(from.data(), &to, reduction->op(), with.channel, &with.options,
                                             with.stream);
             });
}

// ---- what moves data ----

AxcclBackend::WorkPtr AxcclBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  CheckOne("broadcast", tensors);
  const auto root = static_cast<int>(options.rootRank);
  CheckRank("broadcast", "src", root, size_);
  Operands operands("broadcast");
  const axcclView_t view = operands.View(rank_ == root ? operands.Input(tensors[0]) : operands.Output(tensors[0]));
  return Run("broadcast", OpType::BROADCAST, std::move(operands), tensors, options.timeout, options.asyncOp,
             [=](const Launch& with) {
               return axcclBroadcast(1, &view, &view, root, with.channel, &with.options, with.stream);
             });
}

AxcclBackend::WorkPtr AxcclBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                    const c10d::AllgatherOptions& options) {
  const char* const call = "all_gather_into_tensor";
  CheckMultiple(call, output, input, size_);
  Operands operands(call);
  const axcclView_t from = operands.View(operands.Input(input)), to = operands.View(operands.Output(output));
  return Run(call, OpType::_ALLGATHER_BASE, std::move(operands), {output}, options.timeout, options.asyncOp,
             [=](const Launch& with) {
               if (with.plain())
                 return ncclAllGather(from.data, to.data, Elements(from), from.datatype, with.comm, with.stream);
               return axcclAllGather(1, &from, &to, 0, with.channel, &with.options, with.stream);
             });
}

AxcclBackend::WorkPtr AxcclBackend::allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  CheckOne("all_gather", inputs);
  CheckList("all_gather", "the output list", outputs, size_);
  Operands operands("all_gather");
  const axcclView_t from = operands.View(operands.Input(inputs[0]));
  const std::vector<axcclView_t> to = operands.Views(outputs[0], &Operands::Output);
  return Run("all_gather", OpType::ALLGATHER, std::move(operands), outputs[0], options.timeout, options.asyncOp,
             [=](const Launch& with) {
               return axcclAllGatherList(&from, to.data(), with.channel, &with.options, with.stream);
             });
}

AxcclBackend::WorkPtr AxcclBackend::allgather_coalesced(Lists& outputs, Tensors& inputs,
                                                        const c10d::AllgatherOptions& options) {
  const char* const call = "all_gather_coalesced";
  TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(size_), "axccl: ", call, ": ", outputs.size(),
                    " output lists; pass one for each of the ", size_, " ranks");
  for (const Tensors& list : outputs)
    TORCH_CHECK_VALUE(list.size() == inputs.size(), "axccl: ", call, ": ", inputs.size(), " inputs and a list of ",
                      list.size(), " outputs; pass as many of each");
  Operands operands(call);
  const std::vector<axcclView_t> from = operands.Views(inputs, &Operands::Input);
  std::vector<std::vector<axcclView_t>> to;  // by input
  Tensors all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors parts;
    for (const Tensors& list : outputs) parts.push_back(list[i]);
    to.push_back(operands.Views(parts, &Operands::Output));
    all.insert(all.end(), parts.begin(), parts.end());
  }
  return Run(call, OpType::ALLGATHER_COALESCED, std::move(operands), std::move(all), options.timeout, options.asyncOp,
             [=](const Launch& with) {
               ncclResult_t result = ncclGroupStart();
               for (size_t i = 0; i < from.size() && result == ncclSuccess; ++i)
                 result = axcclAllGatherList(&from[i], to[i].data(), with.channel, &with.options, with.stream);
               const ncclResult_t ended = ncclGroupEnd();
               return result != ncclSuccess ? result : ended;
             });
}

AxcclBackend::WorkPtr AxcclBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                    const c10d::AllgatherOptions& options) {
  const char* const call = "all_gather_into_tensor_coalesced";
  TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(), "axccl: ", call, ": ", inputs.size(),
                    " inputs and ", outputs.size(), " outputs; pass as many of each");
  for (size_t i = 0; i < inputs.size(); ++i) CheckMultiple(call, outputs[i], inputs[i], size_);
  Operands operands(call);
  const std::vector<axcclView_t> from = operands.Views(inputs, &Operands::Input);
  const std::vector<axcclView_t> to = operands.Views(outputs, &Operands::Output);
  return Run(call, OpType::COALESCED, std::move(operands), outputs, options.timeout, options.asyncOp,
             [=](const Launch& with) {
               return axcclAllGather(static_cast<int>(from.size()), from.data(), to.data(), 0, with.channel,
                                     &with.options, with.stream);
             });
}

AxcclBackend::WorkPtr AxcclBackend::gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  CheckOne("gather", inputs);
  const auto root = static_cast<int>(options.rootRank);
  CheckRank("gather", "dst", root, size_);
  const bool gets = rank_ == root;
  if (gets) CheckList("gather", "gather_list", outputs, size_);
  TORCH_CHECK_VALUE(gets || outputs.empty() || outputs[0].empty(),
                    "axccl: gather: gather_list is given on a rank that is not dst; pass None there");
  Operands operands("gather");
  const axcclView_t from = operands.View(operands.Input(inputs[0]));
  const std::vector<axcclView_t> to = gets ? operands.Views(outputs[0], &Operands::Output) : std::vector<axcclView_t>();
  return Run("gather", OpType::GATHER, std::move(operands), gets ? outputs[0] : Tensors(), options.timeout,
             options.asyncOp, [=](const Launch& with) {
               return axcclGatherList(&from, gets ? to.data() : nullptr, root, with.channel, &with.options,
                                      with.stream);
             });
}

AxcclBackend::WorkPtr AxcclBackend::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                                       const c10d::GatherOptions& options) {
  const char* const call = "gather_single";
  const auto root = static_cast<int>(options.rootRank);
  CheckRank(call, "dst", root, size_);
  const bool gets = rank_ == root;
  if (gets) CheckMultiple(call, output, input, size_);
  Operands operands(call);
  const axcclView_t from = operands.View(operands.Input(input));
  const axcclView_t to = gets ? operands.View(operands.Output(output)) : axcclView_t{};
  return Run(call, OpType::GATHER, std::move(operands), gets ? Tensors{output} : Tensors(), options.timeout,
             options.asyncOp, [=](const Launch& with) {
               return axcclGather(1, &from, gets ? &to : nullptr, 0, root, with.channel, &with.options, with.stream);
             });
}

AxcclBackend::WorkPtr AxcclBackend::scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) {
  CheckOne("scatter", outputs);
  const auto root = static_cast<int>(options.rootRank);
  CheckRank("scatter", "src", root, size_);
  const bool gives = rank_ == root;
  if (gives) CheckList("scatter", "scatter_list", inputs, size_);
  TORCH_CHECK_VALUE(gives || inputs.empty() || inputs[0].empty(),
                    "axccl: scatter: scatter_list is given on a rank that is not src; pass None there");
  Operands operands("scatter");
  const std::vector<axcclView_t> from =
      gives ? operands.Views(inputs[0], &Operands::Input) : std::vector<axcclView_t>();
  const axcclView_t to = operands.View(operands.Output(outputs[0]));
  return Run("scatter", OpType::SCATTER, std::move(operands), outputs, options.timeout, options.asyncOp,
             [=](const Launch& with) {
               return axcclScatterList(gives ? from.data() : nullptr, &to, root, with.channel, &with.options,
                                       with.stream);
             });
}

AxcclBackend::WorkPtr AxcclBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  CheckList("all_to_all", "the output list", {outputs}, size_);
  CheckList("all_to_all", "the input list", {inputs}, size_);
  Operands operands("all_to_all");
  const std::vector<axcclView_t> from = operands.Views(inputs, &Operands::Input);
  const std::vector<axcclView_t> to = operands.Views(outputs, &Operands::Output);
  return Run("all_to_all", OpType::ALLTOALL, std::move(operands), outputs, options.timeout, options.asyncOp,
             [=](const Launch& with) {
               return axcclAllToAllList(from.data(), to.data(), with.channel, &with.options, with.stream);
             });
}

namespace {

// The rows of dim 0 for each rank, in elements: equal parts, or as given.
std::vector<int64_t> Extents(const char* what, const at::Tensor& tensor, const std::vector<int64_t>& sizes, int ranks) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0), row = rows == 0 ? 0 : tensor.numel() / rows;
  std::vector<int64_t> extents(static_cast<size_t>(ranks));
  if (sizes.empty()) {
    TORCH_CHECK_VALUE(rows % ranks == 0, "axccl: all_to_all_single: ", what, " has ", rows,
                      " rows along dimension 0, which ", ranks, " ranks do not divide; pass split sizes");
    for (int64_t& extent : extents) extent = rows / ranks * row;
    return extents;
  }
  TORCH_CHECK_VALUE(sizes.size() == extents.size(), "axccl: all_to_all_single: ", sizes.size(), " split sizes of ",
                    what, "; pass one for each of the ", ranks, " ranks");
  int64_t sum = 0;
  for (size_t r = 0; r < extents.size(); ++r) {
    extents[r] = sizes[r] * row;
    sum += sizes[r];
  }
  TORCH_CHECK_VALUE(sum == rows, "axccl: all_to_all_single: split sizes of ", what, " add up to ", sum, ", and it has ",
                    rows, " rows along dimension 0; they must agree");
  return extents;
}

}  // namespace

AxcclBackend::WorkPtr AxcclBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                  std::vector<int64_t>& output_sizes, std::vector<int64_t>& input_sizes,
                                                  const c10d::AllToAllOptions& options) {
  const char* const call = "all_to_all_single";
  CheckSameType(call, input, output);
  const std::vector<int64_t> sent = Extents("input", input, input_sizes, size_);
  const std::vector<int64_t> received = Extents("output", output, output_sizes, size_);
  const auto self = static_cast<size_t>(rank_);
  TORCH_CHECK_VALUE(sent[self] == received[self], "axccl: ", call, ": rank ", rank_, " gives ", sent[self],
                    " elements to itself, and its output has room for ", received[self], " there; they must agree");
  Operands operands(call);
  // Also for equal parts: only this rank's may be equal.
  const axcclView_t in = operands.View(operands.Input(input)), out = operands.View(operands.Output(output));
  return Run(call, OpType::ALLTOALL_BASE, std::move(operands), {output}, options.timeout, options.asyncOp,
             [=](const Launch& with) {
               return axcclAllToAllV(1, &in, &out, 0, sent.data(), received.data(), with.channel, &with.options,
                                     with.stream);
             });
}

AxcclBackend::WorkPtr AxcclBackend::barrier(const c10d::BarrierOptions& options) {
  static constexpr int64_t one = 1;  // a block of coalesced calls reads it when it ends
  axcclView_t view = AXCCL_VIEW_INITIALIZER;
  view.data = &byte_, view.datatype = ncclUint8, view.num_dims = 1, view.sizes = &one;
  return Run("barrier", OpType::BARRIER, Operands("barrier"), {}, options.timeout, options.asyncOp,
             [=](const Launch& with) {
               return axcclAllReduce(1, &view, &view, ncclMax, with.channel, &with.options, with.stream);
             });
}

// The library's text names the ranks that have not come, all of them, as gloo does with wait_all_ranks.
void AxcclBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool /*wait_all_ranks*/) {
  c10d::BarrierOptions blocking = options;
  blocking.asyncOp = false;
  (void)barrier(blocking);
}

// ---- messages ----

// PyTorch does not end a block of calls that one of them leaves by an exception, so it is thrown at the end.
template <class Function>
AxcclBackend::WorkPtr AxcclBackend::ThrownAtEnd(const Function& message) {
  try {
    return message();
  } catch (...) {
    if (!coalescing_) throw;
    if (coalesced_.failure == nullptr) coalesced_.failure = std::current_exception();
    return nullptr;
  }
}

axcclStream_t AxcclBackend::StreamOf(int peer, bool sending, int tag) {
  if (coalescing_) return stream_;  // the calls of a group start together
  axcclStream_t& stream = streams_[{peer, sending, tag}];
  if (stream == nullptr) stream = group_->AddStream(sending ? "send" : "recv");
  return stream;
}

template <class Function>
AxcclBackend::WorkPtr AxcclBackend::Message(const char* call, OpType type, Operands operands, Tensors outputs, int peer,
                                            int tag, std::shared_ptr<int> source, const Function& launch) {
  CheckOpen(call);
  TORCH_CHECK_VALUE(tag >= 0 && tag < std::numeric_limits<int>::max(), "axccl: ", call, ": tag is ", tag,
                    "; pass 0 or a positive number below 2^31 - 1");
  axcclStream_t const stream = StreamOf(peer, type == OpType::SEND, tag);
  Launch with = LaunchOn(stream, kNoTimeout);
  // Without a tag of the library's, a message would wait for its turn among all calls of the group.
  with.options.tag = tag + 1;
  with.options.source = source.get();
  ++sequence_;
  if (coalescing_) {
    Coalesce(std::move(operands), std::move(outputs), [launch, with, source] { return launch(with); });
    return nullptr;
  }
  Check(launch(with), call, group_->comm());
  return c10::make_intrusive<AxcclWork>(group_, rank_, type, call, stream, std::move(operands), std::move(outputs),
                                        std::move(source));
}

AxcclBackend::WorkPtr AxcclBackend::send(Tensors& tensors, int peer, int tag) {
  return ThrownAtEnd([&] {
    CheckOne("send", tensors);
    CheckRank("send", "dst", peer, size_);
    Operands operands("send");
    const axcclView_t view = operands.View(operands.Input(tensors[0]));
    return Message("send", OpType::SEND, std::move(operands), {}, peer, tag, nullptr, [=](const Launch& with) {
      return axcclSend(1, &view, peer, with.channel, &with.options, with.stream);
    });
  });
}

AxcclBackend::WorkPtr AxcclBackend::recv(Tensors& tensors, int peer, int tag) {
  return ThrownAtEnd([&] {
    CheckOne("recv", tensors);
    CheckRank("recv", "src", peer, size_);
    Operands operands("recv");
    const axcclView_t view = operands.View(operands.Output(tensors[0]));
    return Message(
        "recv", OpType::RECV, std::move(operands), tensors, peer, tag, std::make_shared<int>(peer),
        [=](const Launch& with) { return axcclRecv(1, &view, peer, with.channel, &with.options, with.stream); });
  });
}

AxcclBackend::WorkPtr AxcclBackend::recvAnysource(Tensors& tensors, int tag) {
  return ThrownAtEnd([&] {
    CheckOne("recv", tensors);
    Operands operands("recv");
    const axcclView_t view = operands.View(operands.Output(tensors[0]));
    return Message("recv", OpType::RECVANYSOURCE, std::move(operands), tensors, AXCCL_ANY_SOURCE, tag,
                   std::make_shared<int>(-1), [=](const Launch& with) {
                     return axcclRecv(1, &view, AXCCL_ANY_SOURCE, with.channel, &with.options, with.stream);
                   });
  });
}

}  // namespace axccl::torch
