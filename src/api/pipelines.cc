// pipelines.h: from arguments to a comm::Pipeline, and the order of calls on it.
#include "src/api/pipelines.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/api/calls.h"
#include "src/api/channels.h"
#include "src/api/export.h"
#include "src/api/operands.h"
#include "src/api/permutation.h"
#include "src/base/log.h"
#include "src/plan/region.h"

namespace axccl::api {
namespace {

using exec::Pipeline;
using plan::Kind;

constexpr const char* kKindNames[] = {"all_gather", "reduce_scatter", "all_reduce",
                                      "all_to_all", "broadcast",      "permute"};

HandleTable<PipelineObject>& Pipelines() {
  static auto* table = new HandleTable<PipelineObject>(0xb1);
  return *table;
}

// ---- creation ----

Status CheckSpec(const char* call, const axcclPipelineSpec_t* spec) {
  if (spec == nullptr || spec->size != sizeof(axcclPipelineSpec_t))
    return InvalidArgument("%s: argument spec is %s; start from AXCCL_PIPELINE_SPEC_INITIALIZER", call,
                           spec == nullptr ? "NULL" : "not initialised");
  const auto kind = static_cast<unsigned>(spec->kind), order = static_cast<unsigned>(spec->order);
  const auto engine = static_cast<unsigned>(spec->engine);
  if (kind > axcclPipelinePermute)
    return InvalidArgument("%s: the spec has kind %u; pass one of axcclPipelineKind_t (0..5)", call, kind);
  if (order > axcclByRank)
    return InvalidArgument("%s: the spec has order %u; pass one of axcclChunkOrder_t (0..3)", call, order);
  const bool ordered =
      kind == axcclPipelineAllGather || kind == axcclPipelineReduceScatter || kind == axcclPipelineAllToAll;
  if (order != axcclDefaultOrder && !ordered)
    return InvalidArgument("%s: the spec has order %u, and a pipeline of %s has one block; pass axcclDefaultOrder",
                           call, order, kKindNames[kind]);
  if (engine > axcclEngineCopy)
    return InvalidArgument("%s: the spec has engine %u; pass one of axcclEngine_t (0..2)", call, engine);
  if ((spec->flags & ~axcclProducer) != 0)
    return InvalidArgument("%s: the spec has unknown flags 0x%x; pass 0 or axcclProducer", call, spec->flags);
  if (const size_t bytes = Options(spec->options).bucket_bytes; bytes != 0)
    return InvalidArgument("%s: the options have bucket_bytes %zu; a pipeline has one operand, pass 0", call, bytes);
  return Status();
}

Kind KindOf(axcclPipelineKind_t kind) {
  constexpr Kind kKinds[] = {Kind::kAllGather, Kind::kReduceScatter, Kind::kAllReduce,
                             Kind::kAllToAll,  Kind::kBroadcast,     Kind::kSendRecv};
  return kKinds[kind];
}

// The dimension along which a block is cut.
Result<int> FindSliceDim(const char* call, const axcclPipelineSpec_t& spec, const tensor::Shape& block) {
  const int dim = spec.slice_dim < 0 ? spec.slice_dim + block.dims : spec.slice_dim;
  if (dim < 0 || dim >= block.dims)
    return InvalidArgument("%s: the spec has slice_dim %d, and blocks have %d dimensions, %s; pass one of them", call,
                           spec.slice_dim, block.dims, tensor::Text(block).c_str());
  const int64_t rows = std::max<int64_t>(block.sizes[dim], 1);
  if (spec.slices < 1 || spec.slices > rows)
    return InvalidArgument(
        "%s: the spec has %lld slices, and blocks of sizes %s have %lld indices along dimension %d; pass 1..%lld", call,
        static_cast<long long>(spec.slices), tensor::Text(block).c_str(), static_cast<long long>(block.sizes[dim]), dim,
        static_cast<long long>(rows));
  return dim;
}

Status CheckChunks(const char* call, const axcclPipelineSpec_t& spec, int ranks) {
  const bool many = spec.kind == axcclPipelineAllGather || spec.kind == axcclPipelineReduceScatter ||
                    spec.kind == axcclPipelineAllToAll;
  const int64_t blocks = many ? ranks : 1;
  if (spec.slices <= plan::kMaxChunks / blocks) return Status();
  return InvalidArgument("%s: the spec has %lld slices of %lld blocks, more than %d chunks; pass fewer", call,
                         static_cast<long long>(spec.slices), static_cast<long long>(blocks), plan::kMaxChunks);
}

// The operand with the dimension of the slices first.
void PutFirst(int dim, exec::ViewOperand* operand) {
  operand->form = operand->form.WithFirst(dim);
  std::rotate(operand->input_strides, operand->input_strides + dim, operand->input_strides + dim + 1);
  std::rotate(operand->output_strides, operand->output_strides + dim, operand->output_strides + dim + 1);
}

// Where the chunks of a side are: `dim`, along which its `blocks` blocks follow each other.
ChunkPlaces PlacesOf(const exec::ViewOperand& operand, ncclDataType_t datatype, bool input, int blocks, int slice_dim,
                     int64_t slices) {
  ChunkPlaces places;
  const exec::BlockForm& form = operand.form;
  const int dim = input ? form.split : form.concat;
  places.datatype = datatype;
  places.view.data = input ? const_cast<void*>(operand.input) : operand.output;
  places.view.element_size = static_cast<uint32_t>(ElementSize(operand.type));
  places.view.shape = form.shape;
  std::copy_n(input ? operand.input_strides : operand.output_strides, tensor::kMaxDims, places.view.strides);
  places.blocks = blocks;
  places.empty = operand.block_bytes == 0;
  if (blocks > 1) places.block_stride = places.view.strides[dim] * form.shape.sizes[dim];
  places.slice_dim = slice_dim;
  places.slices = slices;
  places.rows = form.shape.sizes[slice_dim];
  for (const int64_t more : {0, 1}) {
    std::vector<int64_t>& sizes = places.sizes[more];
    sizes.assign(form.shape.sizes, form.shape.sizes + form.shape.dims);
    sizes[static_cast<size_t>(slice_dim)] = places.rows / slices + more;
  }
  return places;
}

// The operands of a collective, or of a permute, and what the spec wants of it.
struct Bound {
  exec::Call call;
  Neighbours neighbours;
  int in_blocks = 0, out_blocks = 0;
};

Status FindPipelined(const ViewRequest& r, const axcclPipelineSpec_t& spec, const ChannelPin& pin, exec::ViewList* list,
                     Bound* bound) {
  if (spec.kind != axcclPipelinePermute) {
    AXCCL_RETURN_IF_ERROR(FindOperands(r, pin.place.ranks, pin.place.rank, list));
    const plan::Contract contract{r.kind, pin.place.ranks, r.root};
    bound->in_blocks = plan::InputBlocks(contract, pin.place.rank);
    bound->out_blocks = plan::OutputBlocks(contract, pin.place.rank);
    return Status();
  }
  AXCCL_RETURN_IF_ERROR(FindNeighbours(r.name, spec.pairs, spec.num_pairs, pin.place, &bound->neighbours));
  AXCCL_RETURN_IF_ERROR(FindPermuted(r, bound->neighbours.target >= 0, list));
  list->pairs = HashOfPairs(spec.pairs, spec.num_pairs);
  bound->in_blocks = bound->neighbours.target >= 0;
  bound->out_blocks = 1;
  return Status();
}

Status Bind(const char* call, const axcclPipelineSpec_t& spec, const ChannelPin& pin, PipelineObject* object,
            Bound* bound) {
  const ViewRequest r{call,     KindOf(spec.kind), 1,
                      &spec.in, &spec.out,         spec.options,
                      spec.dim, spec.concat_dim,   spec.kind == axcclPipelineBroadcast ? spec.root : 0};
  exec::ViewList list;
  AXCCL_RETURN_IF_ERROR(FindPipelined(r, spec, pin, &list, bound));
  exec::ViewOperand& operand = list.operands[0];
  AXCCL_ASSIGN_OR_RETURN(const int slice_dim, FindSliceDim(call, spec, operand.form.shape));
  AXCCL_RETURN_IF_ERROR(CheckChunks(call, spec, pin.place.ranks));
  const ncclDataType_t datatype = bound->out_blocks != 0 ? spec.out.datatype : spec.in.datatype;
  object->places[axcclIn] = PlacesOf(operand, datatype, true, bound->in_blocks, slice_dim, spec.slices);
  object->places[axcclOut] = PlacesOf(operand, datatype, false, bound->out_blocks, slice_dim, spec.slices);
  PutFirst(slice_dim, &operand);
  list.slices.slices = spec.slices;
  list.slices.dim = static_cast<int8_t>(slice_dim);
  list.slices.order = static_cast<uint8_t>(spec.order);
  list.slices.produced = (spec.flags & axcclProducer) != 0;
  std::vector<exec::Call> calls;
  AXCCL_RETURN_IF_ERROR(MakeCalls(r, std::move(list), &calls));
  bound->call = std::move(calls[0]);
  bound->call.permutes = spec.kind == axcclPipelinePermute;
  AXCCL_RETURN_IF_ERROR(ResolveOnViews(r, pin.comm.get(), spec.op, &bound->call));
  bound->call.group_order = (bound->call.group_order || pin.channel->group_order()) && bound->call.OrderMatters();
  if (bound->call.callback == nullptr) return Status();
  return MakeStatus(Code::kInvalidUsage,
                    "%s: the spec has a callback as op, and pipelines reduce by built-in operators and PreMulSum only",
                    call);
}

// Whether copy engines are to move the data.
Result<bool> ChooseCopies(const char* call, const axcclPipelineSpec_t& spec, const ChannelPin& pin) {
  const bool reduces = plan::Reduces(KindOf(spec.kind)), there = pin.comm->core()->device().traits().has_copy_engines;
  if (spec.engine != axcclEngineCopy)
    return spec.engine == axcclEngineAuto && pin.comm->config().spares_blocks && there && !reduces;
  if (reduces)
    return InvalidArgument(
        "%s: the spec has engine axcclEngineCopy and kind %s, and copy engines do not reduce; pass axcclEngineAuto or "
        "axcclEngineKernel",
        call, kKindNames[spec.kind]);
  if (there) return true;
  return InvalidArgument(
      "%s: the spec has engine axcclEngineCopy, and the rank is on a device without copy engines; pass "
      "axcclEngineAuto or axcclEngineKernel",
      call);
}

Status Create(const char* call, const axcclPipelineSpec_t* spec, axcclChannel_t channel, axcclPipeline_t* out) {
  if (out == nullptr) return InvalidArgument("%s: argument pipeline is NULL; pass where to put the pipeline", call);
  *out = nullptr;
  AXCCL_RETURN_IF_ERROR(CheckSpec(call, spec));
  AXCCL_ASSIGN_OR_RETURN(const ChannelPin pin, PinChannel(channel, call));
  auto object = std::make_shared<PipelineObject>();
  object->comm = pin.object ? pin.object->comm : reinterpret_cast<ncclComm_t>(channel);
  object->kind = spec->kind;
  object->produced = (spec->flags & axcclProducer) != 0;
  AXCCL_ASSIGN_OR_RETURN(const bool copies, ChooseCopies(call, *spec, pin));
  Bound bound;
  AXCCL_RETURN_IF_ERROR(Bind(call, *spec, pin, object.get(), &bound));
  object->declared = std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(object->places[axcclIn].chunks()));
  const std::string name = pin.object ? pin.object->channel->name().Text() : "the default channel";
  comm::Communicator* const core = pin.comm->core().get();
  AXCCL_ASSIGN_OR_RETURN(
      object->pipeline,
      Prefixed(call, comm::Pipeline::Make(core, {pin.channel, name, bound.call, bound.neighbours.target,
                                                 bound.neighbours.source, copies})));
  AXCCL_INFO(kColl, "PipelineCreate: %s [nranks=%d] %s plan %s", exec::DescribeCall(bound.call).c_str(),
             pin.place.ranks, object->pipeline->algorithm(), plan::ToString(object->pipeline->plan_hash()).c_str());
  const std::shared_ptr<comm::Pipeline> made = object->pipeline;
  const Status inserted = Insert(&Pipelines(), call, "pipelines", std::move(object), out);
  if (!inserted.ok()) made->Close(core);
  return inserted;
}

// ---- use ----

struct PipelinePin {
  HandleTable<PipelineObject>::Pin object;
  CommPin comm;
  exec::Pipeline& run() const { return object->pipeline->run(); }
};

Result<HandleTable<PipelineObject>::Pin> FindObject(axcclPipeline_t handle, const char* call) {
  HandleTable<PipelineObject>::Pin object = Pipelines().Get(handle);
  if (object) return object;
  return InvalidArgument(
      "%s: argument pipeline is %s (%p); pass one from axcclPipelineCreate that has not been destroyed", call,
      handle == nullptr ? "NULL" : "not live", static_cast<void*>(handle));
}

Result<PipelinePin> PinPipeline(axcclPipeline_t handle, const char* call) {
  PipelinePin pin;
  AXCCL_ASSIGN_OR_RETURN(pin.object, FindObject(handle, call));
  pin.comm = Comms().Get(pin.object->comm);
  if (pin.comm) return pin;
  return InvalidArgument(
      "%s: the communicator (%p) of the pipeline (%p) has been destroyed or aborted; all that is left to do with the "
      "pipeline is axcclPipelineDestroy",
      call, static_cast<void*>(pin.object->comm), static_cast<void*>(handle));
}

// The same for calls that need a start.
Result<PipelinePin> PinStarted(axcclPipeline_t handle, const char* call) {
  AXCCL_ASSIGN_OR_RETURN(PipelinePin pin, PinPipeline(handle, call));
  if (pin.object->deferred.load(std::memory_order_acquire))
    return MakeStatus(Code::kInvalidUsage,
                      "%s: the pipeline (%p) was started in a group and begins at its end; call ncclGroupEnd first",
                      call, static_cast<void*>(handle));
  if (pin.object->phase.load(std::memory_order_acquire) != PipelineObject::kNew) return pin;
  return MakeStatus(Code::kInvalidUsage, "%s: the pipeline (%p) has not been started; call axcclPipelineStart first",
                    call, static_cast<void*>(handle));
}

// The same for calls that threads make to wait for chunks or to declare them ready.
Result<PipelinePin> PinForThread(axcclPipeline_t handle, const char* call, const char* instead) {
  AXCCL_ASSIGN_OR_RETURN(PipelinePin pin, PinStarted(handle, call));
  if (!pin.run().is_captured()) return pin;
  return MakeStatus(Code::kInvalidUsage,
                    "%s: the last start of the pipeline (%p) was captured, and graphs run without threads; use %s or "
                    "the chunk's word",
                    call, static_cast<void*>(handle), instead);
}

Status CheckChunk(const char* call, const PipelineObject& object, axcclSide_t side, int64_t chunk,
                  const char* argument) {
  const int64_t chunks = object.places[side].chunks();
  if (chunk >= 0 && chunk < chunks) return Status();
  if (chunks == 0)
    return InvalidArgument("%s: argument %s is %lld, and this rank has no %s in the pipeline of %s", call, argument,
                           static_cast<long long>(chunk), side == axcclIn ? "input" : "output",
                           kKindNames[object.kind]);
  return InvalidArgument("%s: argument %s is %lld; pass 0..%lld, as the %s has %lld chunks", call, argument,
                         static_cast<long long>(chunk), static_cast<long long>(chunks - 1),
                         side == axcclIn ? "input" : "output", static_cast<long long>(chunks));
}

// Names a failure of the communicator.
Status Named(const char* call, const Status& status) { return status.ok() ? status : Prefixed(call, status); }

Status StartNow(const char* call, const PipelinePin& pin, exec::StreamRef stream) {
  AXCCL_RETURN_IF_ERROR(pin.comm->Ready(call).status());
  AXCCL_RETURN_IF_ERROR(Named(call, pin.run().Start(stream)));
  pin.object->starts.fetch_add(1, std::memory_order_relaxed);
  return Status();
}

// A start in a group, which begins at its end, or never if the group is given up: then it has not been made.
class DeferredStart {
 public:
  DeferredStart(const char* call, axcclPipeline_t handle, exec::StreamRef stream, PipelineObject::Phase before)
      : call_(call),
        handle_(handle),
        stream_(stream),
        keep_(stream.host != nullptr ? stream.host->shared_from_this() : nullptr),
        before_(before) {}
  ~DeferredStart() {
    if (begun_) return;
    const auto object = Pipelines().Get(handle_);
    if (!object) return;
    object->phase.store(before_, std::memory_order_relaxed);
    object->deferred.store(false, std::memory_order_release);
  }
  DeferredStart(const DeferredStart&) = delete;

  Status Begin() {
    AXCCL_ASSIGN_OR_RETURN(const PipelinePin pin, PinPipeline(handle_, call_));
    AXCCL_RETURN_IF_ERROR(StartNow(call_, pin, stream_));
    begun_ = true;
    pin.object->deferred.store(false, std::memory_order_release);
    return Status();
  }

 private:
  const char* const call_;
  const axcclPipeline_t handle_;
  const exec::StreamRef stream_;
  const std::shared_ptr<device::host::Stream> keep_;
  const PipelineObject::Phase before_;
  bool begun_ = false;
};

Status Start(const char* call, axcclPipeline_t handle, cudaStream_t stream_handle) {
  AXCCL_ASSIGN_OR_RETURN(const PipelinePin pin, PinPipeline(handle, call));
  AXCCL_RETURN_IF_ERROR(pin.comm->Ready(call).status());
  exec::StreamRef stream;
  AXCCL_RETURN_IF_ERROR(pin.comm->core()->device().FindStream(stream_handle, call, &stream));
  PipelineObject& object = *pin.object;
  const std::lock_guard lock(object.mutex);
  const PipelineObject::Phase before = object.phase.load(std::memory_order_relaxed);
  if (before == PipelineObject::kStarted && !pin.run().is_abandoned())
    return MakeStatus(
        Code::kInvalidUsage,
        "%s: the pipeline (%p) is started and not finished; call axcclPipelineFinish before the next start", call,
        static_cast<void*>(handle));
  for (int64_t c = 0; c < object.places[axcclIn].chunks(); ++c)
    object.declared[static_cast<size_t>(c)].store(false, std::memory_order_relaxed);
  if (comm::CallGroup::IsOpen()) {
    auto start = std::make_shared<DeferredStart>(call, handle, stream, before);
    object.deferred.store(true, std::memory_order_relaxed);
    comm::CallGroup::Current().AddStart([start] { return start->Begin(); }, pin.comm->config().blocking);
  } else {
    AXCCL_RETURN_IF_ERROR(StartNow(call, pin, stream));
  }
  object.phase.store(PipelineObject::kStarted, std::memory_order_release);
  return Status();
}

Status Finish(const char* call, axcclPipeline_t handle, cudaStream_t stream_handle) {
  AXCCL_ASSIGN_OR_RETURN(const PipelinePin pin, PinStarted(handle, call));
  exec::StreamRef stream;
  AXCCL_RETURN_IF_ERROR(pin.comm->core()->device().FindStream(stream_handle, call, &stream));
  const std::lock_guard lock(pin.object->mutex);
  if (pin.object->phase.load(std::memory_order_relaxed) != PipelineObject::kStarted)
    return MakeStatus(Code::kInvalidUsage,
                      "%s: the pipeline (%p) has no start that is not finished; call axcclPipelineStart first", call,
                      static_cast<void*>(handle));
  AXCCL_RETURN_IF_ERROR(Named(call, pin.run().Finish(stream)));
  pin.object->phase.store(PipelineObject::kFinished, std::memory_order_release);
  return Status();
}

// Notes that an input chunk is declared ready.
Status Declare(const char* call, axcclPipeline_t handle, const PipelinePin& pin, int64_t chunk) {
  const PipelineObject& object = *pin.object;
  if (!object.produced)
    return MakeStatus(
        Code::kInvalidUsage,
        "%s: the pipeline (%p) was created without axcclProducer, so its whole input is ready at the start", call,
        static_cast<void*>(handle));
  AXCCL_RETURN_IF_ERROR(CheckChunk(call, object, axcclIn, chunk, "chunk"));
  if (!object.declared[static_cast<size_t>(chunk)].exchange(true, std::memory_order_relaxed)) return Status();
  return MakeStatus(Code::kInvalidUsage, "%s: chunk %lld of the input was declared ready before, since the last start",
                    call, static_cast<long long>(chunk));
}

Status Destroy(const char* call, axcclPipeline_t handle) {
  AXCCL_ASSIGN_OR_RETURN(HandleTable<PipelineObject>::Pin object, FindObject(handle, call));
  CommPin comm = Comms().Get(object->comm);
  const bool lives = comm && comm->core() != nullptr && !comm->core()->failed();
  if (lives && object->phase.load(std::memory_order_acquire) == PipelineObject::kStarted &&
      !object->pipeline->run().is_abandoned())
    return MakeStatus(Code::kInvalidUsage,
                      "%s: the pipeline (%p) is started and not finished; call axcclPipelineFinish "
                      "first",
                      call, static_cast<void*>(handle));
  if (comm) object->pipeline->run().WaitIdle();
  if (lives) AXCCL_RETURN_IF_ERROR(Named(call, object->pipeline->run().Leave()));
  object.Drop();
  const std::shared_ptr<PipelineObject> removed = Pipelines().Remove(handle);
  if (removed == nullptr)
    return InvalidArgument("%s: argument pipeline (%p) was destroyed by another thread meanwhile", call,
                           static_cast<void*>(handle));
  if (comm) removed->pipeline->Close(comm->core().get());
  return Status();
}

// ---- chunks ----

Status GetChunk(const char* call, const PipelineObject& object, axcclSide_t side, int64_t position,
                axcclChunk_t* chunk) {
  if (chunk == nullptr || chunk->size != sizeof(axcclChunk_t))
    return InvalidArgument("%s: argument chunk is %s; start from AXCCL_CHUNK_INITIALIZER", call,
                           chunk == nullptr ? "NULL" : "not initialised");
  AXCCL_RETURN_IF_ERROR(CheckChunk(call, object, side, position, "position"));
  const ChunkPlaces& places = object.places[side];
  const auto pipeline_side = side == axcclIn ? Pipeline::kIn : Pipeline::kOut;
  const int64_t slices = places.slices;
  chunk->block = object.pipeline->Order(pipeline_side)[static_cast<size_t>(position / slices)];
  chunk->slice = position % slices;
  chunk->number = chunk->block * slices + chunk->slice;
  const plan::Range rows = plan::Cut(static_cast<uint64_t>(places.rows), 1, static_cast<uint32_t>(slices),
                                     static_cast<uint32_t>(chunk->slice));
  const int64_t elements =
      chunk->block * places.block_stride + static_cast<int64_t>(rows.begin) * places.view.strides[places.slice_dim];
  const bool longer = static_cast<int64_t>(rows.count) != places.sizes[0][static_cast<size_t>(places.slice_dim)];
  chunk->view.size = sizeof(axcclView_t);
  chunk->view.data = places.view.data;
  if (!places.empty) chunk->view.data = static_cast<std::byte*>(places.view.data) + elements * places.view.element_size;
  chunk->view.datatype = places.datatype;
  chunk->view.num_dims = places.view.shape.dims;
  chunk->view.sizes = places.sizes[longer].data();
  chunk->view.strides = places.view.strides;
  return Status();
}

Status CheckSide(const char* call, axcclSide_t side) {
  const auto number = static_cast<unsigned>(side);
  if (number <= axcclOut) return Status();
  return InvalidArgument("%s: argument side is %u; pass axcclIn or axcclOut", call, number);
}

Status GetInfo(const char* call, const PipelineObject& object, axcclPipelineInfo_t* info) {
  if (info == nullptr || info->size < sizeof(size_t))
    return InvalidArgument("%s: argument info is %s; set info->size = sizeof(axcclPipelineInfo_t)", call,
                           info == nullptr ? "NULL" : "without its size");
  axcclPipelineInfo_t all{};
  all.size = std::min(info->size, sizeof(all));
  all.in_chunks = object.places[axcclIn].chunks();
  all.out_chunks = object.places[axcclOut].chunks();
  all.algorithm = object.pipeline->algorithm();
  all.engine = object.pipeline->run().copies() ? axcclEngineCopy : axcclEngineKernel;
  all.plan_hash[0] = object.pipeline->plan_hash().high;
  all.plan_hash[1] = object.pipeline->plan_hash().low;
  all.blocks = object.pipeline->run().blocks();
  all.scratch_bytes = object.pipeline->run().scratch_bytes();
  all.memory_bytes = object.pipeline->memory_bytes();
  all.starts = object.starts.load(std::memory_order_relaxed);
  std::memcpy(info, &all, all.size);
  return Status();
}

}  // namespace
}  // namespace axccl::api

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT

AXCCL_API ncclResult_t axcclPipelineCreate(axcclPipeline_t* pipeline, const axcclPipelineSpec_t* spec,
                                           axcclChannel_t channel) {
  return Entry("axcclPipelineCreate", [&](const char* call) { return Create(call, spec, channel, pipeline); });
}

AXCCL_API ncclResult_t axcclPipelineDestroy(axcclPipeline_t pipeline) {
  return Entry("axcclPipelineDestroy", [&](const char* call) { return Destroy(call, pipeline); });
}

AXCCL_API ncclResult_t axcclPipelineStart(axcclPipeline_t pipeline, cudaStream_t stream) {
  return Entry("axcclPipelineStart", [&](const char* call) { return Start(call, pipeline, stream); });
}

AXCCL_API ncclResult_t axcclPipelineFinish(axcclPipeline_t pipeline, cudaStream_t stream) {
  return Entry("axcclPipelineFinish", [&](const char* call) { return Finish(call, pipeline, stream); });
}

AXCCL_API ncclResult_t axcclPipelineWait(axcclPipeline_t pipeline, int64_t chunk) {
  return Entry("axcclPipelineWait", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const PipelinePin pin, PinForThread(pipeline, call, "axcclPipelineStreamWait"));
    AXCCL_RETURN_IF_ERROR(CheckChunk(call, *pin.object, axcclOut, chunk, "chunk"));
    return Named(call, pin.run().Wait(chunk));
  });
}

AXCCL_API ncclResult_t axcclPipelineTest(axcclPipeline_t pipeline, int64_t chunk, int* done) {
  return Entry("axcclPipelineTest", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const PipelinePin pin, PinForThread(pipeline, call, "axcclPipelineStreamWait"));
    if (done == nullptr) return InvalidArgument("%s: argument done is NULL; pass where to put the answer", call);
    *done = 0;
    AXCCL_RETURN_IF_ERROR(CheckChunk(call, *pin.object, axcclOut, chunk, "chunk"));
    AXCCL_ASSIGN_OR_RETURN(const bool there, Prefixed(call, pin.run().Test(chunk)));
    *done = there;
    return Status();
  });
}

AXCCL_API ncclResult_t axcclPipelineStreamWait(axcclPipeline_t pipeline, int64_t chunk, cudaStream_t stream_handle) {
  return Entry("axcclPipelineStreamWait", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const PipelinePin pin, PinStarted(pipeline, call));
    AXCCL_RETURN_IF_ERROR(CheckChunk(call, *pin.object, axcclOut, chunk, "chunk"));
    exec::StreamRef stream;
    AXCCL_RETURN_IF_ERROR(pin.comm->core()->device().FindStream(stream_handle, call, &stream));
    return Named(call, pin.run().StreamWait(chunk, stream));
  });
}

AXCCL_API ncclResult_t axcclPipelineReady(axcclPipeline_t pipeline, int64_t chunk) {
  return Entry("axcclPipelineReady", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const PipelinePin pin, PinForThread(pipeline, call, "axcclPipelineStreamReady"));
    AXCCL_RETURN_IF_ERROR(Declare(call, pipeline, pin, chunk));
    pin.run().Ready(chunk);
    return Status();
  });
}

AXCCL_API ncclResult_t axcclPipelineStreamReady(axcclPipeline_t pipeline, int64_t chunk, cudaStream_t stream_handle) {
  return Entry("axcclPipelineStreamReady", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const PipelinePin pin, PinStarted(pipeline, call));
    exec::StreamRef stream;
    AXCCL_RETURN_IF_ERROR(pin.comm->core()->device().FindStream(stream_handle, call, &stream));
    AXCCL_RETURN_IF_ERROR(Declare(call, pipeline, pin, chunk));
    const Status ready = pin.run().StreamReady(chunk, stream);
    if (!ready.ok()) pin.object->declared[static_cast<size_t>(chunk)].store(false, std::memory_order_relaxed);
    return Named(call, ready);
  });
}

AXCCL_API ncclResult_t axcclPipelineGetChunk(axcclPipeline_t pipeline, axcclSide_t side, int64_t position,
                                             axcclChunk_t* chunk) {
  return Entry("axcclPipelineGetChunk", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const HandleTable<PipelineObject>::Pin object, FindObject(pipeline, call));
    AXCCL_RETURN_IF_ERROR(CheckSide(call, side));
    return GetChunk(call, *object, side, position, chunk);
  });
}

AXCCL_API ncclResult_t axcclPipelineGetFlags(axcclPipeline_t pipeline, axcclSide_t side, uint32_t** words,
                                             int64_t* count) {
  return Entry("axcclPipelineGetFlags", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const HandleTable<PipelineObject>::Pin object, FindObject(pipeline, call));
    AXCCL_RETURN_IF_ERROR(CheckSide(call, side));
    if (words == nullptr) return InvalidArgument("%s: argument words is NULL; pass where to put their address", call);
    static_assert(sizeof(exec::Pipeline::Word) == sizeof(uint32_t));
    *words =
        reinterpret_cast<uint32_t*>(object->pipeline->run().Expose(side == axcclIn ? Pipeline::kIn : Pipeline::kOut));
    if (count != nullptr) *count = object->places[side].chunks();
    return Status();
  });
}

AXCCL_API ncclResult_t axcclPipelineGetInfo(axcclPipeline_t pipeline, axcclPipelineInfo_t* info) {
  return Entry("axcclPipelineGetInfo", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const HandleTable<PipelineObject>::Pin object, FindObject(pipeline, call));
    return GetInfo(call, *object, info);
  });
}
