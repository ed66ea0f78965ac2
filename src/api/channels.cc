// channels.h: channels.
#include "src/api/channels.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "src/api/export.h"

namespace axccl::api {
namespace {

using comm::ChannelName;
using comm::GroupChannel;

HandleTable<ChannelObject>& Channels() {
  static auto* table = new HandleTable<ChannelObject>(0xab);
  return *table;
}

axcclChannelInfo_t DefaultInfo(const comm::Identity& identity) {
  axcclChannelInfo_t info{};
  info.size = sizeof(info);
  info.rank = info.group_rank = identity.rank;
  info.num_ranks = info.group_size = identity.ranks;
  info.partition_id = identity.rank;
  return info;
}

void SetPlace(const GroupsObject& object, axcclChannelInfo_t* info) {
  const tensor::ReplicaGroups::Place place = object.groups.PlaceOf(info->rank);
  info->group = place.group;
  info->group_rank = place.position;
  info->group_size = place.size;
  info->replica_id = info->rank / object.grid.num_partitions;
  info->partition_id = info->rank % object.grid.num_partitions;
}

// Finds the objects behind a handle, which belongs to a channel or a communicator, alive or not.
Result<ChannelPin> FindChannel(axcclChannel_t handle, const char* call) {
  ChannelPin pin;
  pin.comm = Comms().Get(handle);
  if (pin.comm) return pin;
  pin.object = Channels().Get(handle);
  if (!pin.object)
    return InvalidArgument(
        "%s: argument channel is %s (%p); pass one from axcclChannelCreate, or axcclDefaultChannel of a communicator, "
        "that has not been destroyed",
        call, handle == nullptr ? "NULL" : "not live", static_cast<void*>(handle));
  pin.comm = Comms().Get(pin.object->comm);
  if (pin.comm) return pin;
  return InvalidArgument(
      "%s: the communicator (%p) of channel %lld has been destroyed or aborted; all that is left to do with the "
      "channel is axcclChannelDestroy",
      call, static_cast<void*>(pin.object->comm), static_cast<long long>(pin.object->info.channel_id));
}

Status Create(const char* call, axcclChannel_t* out, ncclComm_t handle, comm::Communicator* core,
              const GroupsObject* groups, int64_t channel_id, bool group_order) {
  auto object = std::make_shared<ChannelObject>();
  object->comm = handle;
  object->info = DefaultInfo(core->identity());
  object->info.channel_id = channel_id;
  ChannelName name{channel_id, {}};
  if (groups == nullptr) {
    name.ranks.resize(static_cast<size_t>(core->identity().ranks));
    for (size_t r = 0; r < name.ranks.size(); ++r) name.ranks[r] = static_cast<int32_t>(r);
  } else {
    SetPlace(*groups, &object->info);
    if (object->info.group >= 0) {
      const auto ranks = groups->groups.Group(object->info.group);
      name.ranks.assign(ranks.begin(), ranks.end());
    }
  }
  // Must precede creating the channel, because no other code could then remove the object.
  AXCCL_RETURN_IF_ERROR(Insert(&Channels(), call, "channels", object, &object->handle));
  const axcclChannel_t made = *out = object->handle;
  if (name.ranks.empty()) return Status();
  const Status found = CatchAll(call, [&] {
    const auto note = [&](GroupChannel* channel, bool is_new) {
      if (is_new) {
        object->channel = channel;
        channel->user = object.get();
        return;
      }
      auto* known = static_cast<ChannelObject*>(channel->user);
      known->references.fetch_add(1, std::memory_order_relaxed);
      *out = known->handle;
    };
    return Prefixed(call, core->channels().Acquire(std::move(name), group_order, note).status());
  });
  if (!found.ok()) *out = nullptr;
  if (*out != made) (void)Channels().Remove(made);
  return found;
}

Status CheckSize(const char* call, const GroupsObject& groups, int ranks) {
  if (groups.groups.num_ranks() == ranks) return Status();
  return InvalidArgument(
      "%s: argument groups is for %d ranks (%lld replicas x %lld partitions), the communicator has %d; they must agree",
      call, groups.groups.num_ranks(), static_cast<long long>(groups.grid.num_replicas),
      static_cast<long long>(groups.grid.num_partitions), ranks);
}

Status Destroy(const char* call, axcclChannel_t handle) {
  if (handle != nullptr && Comms().Get(handle))
    return InvalidArgument(
        "%s: argument channel (%p) is the default channel of a communicator, which lives as long as that", call,
        static_cast<void*>(handle));
  const auto object = Channels().Get(handle);
  if (!object)
    return InvalidArgument("%s: argument channel (%p) is not live; pass a channel once for every time it was created",
                           call, static_cast<void*>(handle));
  const CommPin comm = Comms().Get(object->comm);
  auto last = [&] { return object->references.fetch_sub(1, std::memory_order_acq_rel) == 1; };
  // Released after the handle is removed, when no other thread's call uses it.
  std::shared_ptr<comm::GroupChannel> released;
  bool gone;
  if (comm && object->channel != nullptr) {
    released = comm->core()->channels().Release(object->channel, last);
    gone = released != nullptr;
  } else {
    gone = last();
  }
  if (gone) Channels().Remove(handle, 1);
  return Status();
}

}  // namespace

Result<exec::Channel*> OrderOf(const char* call, const ChannelPin& pin, int tag) {
  if (tag == 0) return pin.channel;
  AXCCL_ASSIGN_OR_RETURN(GroupChannel * tagged, Prefixed(call, pin.comm->core()->channels().TagOn(pin.channel, tag)));
  return tagged;
}

Result<exec::Channel*> PairOf(const char* call, const ChannelPin& pin, int peer, bool sending, int tag) {
  if (tag != 0) {
    AXCCL_ASSIGN_OR_RETURN(exec::Channel * tagged, OrderOf(call, pin, tag));
    return Prefixed(call, static_cast<GroupChannel*>(tagged)->PairChannel(peer, sending));
  }
  if (pin.object) return Prefixed(call, pin.object->channel->PairChannel(peer, sending));
  return Prefixed(call, pin.comm->core()->pairs().Of(peer, sending));
}

Result<ChannelPin> PinChannel(axcclChannel_t handle, const char* call, bool outside) {
  AXCCL_ASSIGN_OR_RETURN(ChannelPin pin, FindChannel(handle, call));
  const comm::CommHandle& comm = *pin.comm;
  if (!comm.ready() || comm.revoked() || comm.core()->failed()) return comm.Ready(call).status();
  const comm::Identity& identity = comm.core()->identity();
  if (!pin.object) {
    pin.channel = comm.core()->channel();
    pin.place = {identity.rank, identity.ranks};
    return pin;
  }
  const axcclChannelInfo_t& info = pin.object->info;
  pin.channel = pin.object->channel;
  pin.place = {info.group_rank, info.group_size};
  if (pin.channel != nullptr) return pin;
  if (!outside)
    return MakeStatus(Code::kInvalidUsage,
                      "%s: rank %d is in no group of channel %lld; only the ranks of its groups may call it", call,
                      info.rank, static_cast<long long>(info.channel_id));
  pin.channel = comm.core()->channel();
  pin.place = {-1, 0};
  return pin;
}

}  // namespace axccl::api

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT

AXCCL_API ncclResult_t axcclChannelCreate(axcclChannel_t* channel, ncclComm_t handle, axcclGroups_t groups_handle,
                                          int64_t channel_id, unsigned int flags) {
  return Entry("axcclChannelCreate", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    if (channel == nullptr) return InvalidArgument("%s: argument channel is NULL; pass where to put the channel", call);
    *channel = nullptr;
    if ((flags & ~axcclGroupOrder) != 0)
      return InvalidArgument("%s: argument flags is 0x%x; pass 0 or axcclGroupOrder", call, flags);
    AXCCL_ASSIGN_OR_RETURN(comm::Communicator* const core, comm->Ready(call));
    GroupsPin groups;
    if (groups_handle != nullptr) {
      AXCCL_ASSIGN_OR_RETURN(groups, PinGroups(groups_handle, call));
      AXCCL_RETURN_IF_ERROR(CheckSize(call, *groups, core->identity().ranks));
    }
    return Create(call, channel, handle, core, groups.get(), channel_id, (flags & axcclGroupOrder) != 0);
  });
}

AXCCL_API ncclResult_t axcclChannelDestroy(axcclChannel_t handle) {
  return Entry("axcclChannelDestroy", [&](const char* call) { return Destroy(call, handle); });
}

AXCCL_API ncclResult_t axcclChannelGetInfo(axcclChannel_t handle, axcclChannelInfo_t* info) {
  return Entry("axcclChannelGetInfo", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const ChannelPin pin, FindChannel(handle, call));
    if (info == nullptr || info->size < sizeof(size_t))
      return InvalidArgument("%s: argument info is %s; set info->size = sizeof(axcclChannelInfo_t)", call,
                             info == nullptr ? "NULL" : "without its size");
    if (!pin.object && (pin.comm->phase() == comm::Phase::kInitialising || pin.comm->phase() == comm::Phase::kFailed))
      return pin.comm->Ready(call).status();
    axcclChannelInfo_t all = pin.object ? pin.object->info : DefaultInfo(pin.comm->core()->identity());
    all.size = std::min(info->size, sizeof(all));
    std::memcpy(info, &all, all.size);
    return Status();
  });
}
