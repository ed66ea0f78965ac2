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

// The objects behind a handle, which is a channel's or a communicator's, alive or not.
ChannelPin FindChannel(axcclChannel_t handle, const char* call, ncclResult_t* result) {
  ChannelPin pin;
  if (const Status status = CheckProcess(call); !status.ok()) {
    *result = Report(status);
    return pin;
  }
  pin.comm = Comms().Get(handle);
  if (pin.comm) return pin;
  pin.object = Channels().Get(handle);
  if (!pin.object) {
    *result = InvalidArgument(
        "%s: argument channel is %s (%p); pass one from axcclChannelCreate, or "
        "axcclDefaultChannel of a communicator, that has not been destroyed",
        call, handle == nullptr ? "NULL" : "not live", static_cast<void*>(handle));
    return pin;
  }
  pin.comm = Comms().Get(pin.object->comm);
  if (!pin.comm)
    *result = InvalidArgument(
        "%s: the communicator (%p) of channel %lld has been destroyed or aborted; all that is left to "
        "do with the channel is axcclChannelDestroy",
        call, static_cast<void*>(pin.object->comm), static_cast<long long>(pin.object->info.channel_id));
  return pin;
}

Status Create(axcclChannel_t* out, ncclComm_t handle, comm::Communicator* core, const GroupsObject* groups,
              int64_t channel_id, bool group_order) {
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
  // Before the channel is there, of which nobody else could find the object.
  AXCCL_RETURN_IF_ERROR(Insert(&Channels(), "axcclChannelCreate", "channels", object, &object->handle));
  const axcclChannel_t made = *out = object->handle;
  if (name.ranks.empty()) return Status();
  const Status found = CatchAll("axcclChannelCreate", [&] {
    return core->channels()
        .Acquire(std::move(name), group_order,
                 [&](GroupChannel* channel, bool is_new) {
                   if (is_new) {
                     object->channel = channel;
                     channel->user = object.get();
                     return;
                   }
                   auto* known = static_cast<ChannelObject*>(channel->user);
                   known->references.fetch_add(1, std::memory_order_relaxed);
                   *out = known->handle;
                 })
        .status();
  });
  if (!found.ok()) *out = nullptr;
  if (*out != made) (void)Channels().Remove(made);
  return found;
}

}  // namespace

Result<exec::Channel*> PairOf(const ChannelPin& pin, int peer, bool sending) {
  if (pin.object) return pin.object->channel->PairChannel(peer, sending);
  return pin.comm->core()->PairChannel(peer, sending);
}

ChannelPin PinChannel(axcclChannel_t handle, const char* call, GroupPlace* place, ncclResult_t* result, bool outside) {
  ChannelPin pin = FindChannel(handle, call, result);
  if (!pin) return pin;
  const comm::Comm& comm = *pin.comm.get();
  if (!comm.ready() || comm.revoked() || comm.core()->failed()) {
    *result = Report(comm.Ready(call).status());
    pin.comm.Drop();
    return pin;
  }
  const comm::Identity& identity = comm.core()->identity();
  if (!pin.object) {
    pin.channel = comm.core()->channel();
    *place = {identity.rank, identity.ranks};
    return pin;
  }
  const axcclChannelInfo_t& info = pin.object->info;
  pin.channel = pin.object->channel;
  *place = {info.group_rank, info.group_size};
  if (pin.channel == nullptr && outside) {
    pin.channel = comm.core()->channel();
    *place = {-1, 0};
  } else if (pin.channel == nullptr) {
    *result = Report(MakeStatus(Code::kInvalidUsage,
                                "%s: rank %d is in no group of channel %lld; only the ranks of its groups may call it",
                                call, info.rank, static_cast<long long>(info.channel_id)));
    pin.comm.Drop();
  }
  return pin;
}

}  // namespace axccl::api

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT

AXCCL_API ncclResult_t axcclChannelCreate(axcclChannel_t* channel, ncclComm_t handle, axcclGroups_t groups_handle,
                                          int64_t channel_id, unsigned int flags) try {
  constexpr const char* kCall = "axcclChannelCreate";
  ncclResult_t result = ncclSuccess;
  const CommPin comm = PinComm(handle, kCall, &result);
  if (!comm) return result;
  if (channel == nullptr) return InvalidArgument("%s: argument channel is NULL; pass where to put the channel", kCall);
  *channel = nullptr;
  if ((flags & ~axcclGroupOrder) != 0)
    return InvalidArgument("%s: argument flags is 0x%x; pass 0 or axcclGroupOrder", kCall, flags);
  const auto ready = comm->Ready(kCall);
  if (!ready.ok()) return Report(ready.status());
  const int ranks = comm->core()->identity().ranks;
  GroupsPin groups;
  if (groups_handle != nullptr) {
    groups = PinGroups(groups_handle, kCall, &result);
    if (!groups) return result;
    if (groups->groups.num_ranks() != ranks)
      return InvalidArgument(
          "%s: argument groups is for %d ranks (%lld replicas x %lld partitions), the communicator has %d; "
          "they must agree",
          kCall, groups->groups.num_ranks(), static_cast<long long>(groups->grid.num_replicas),
          static_cast<long long>(groups->grid.num_partitions), ranks);
  }
  return Report(Create(channel, handle, comm->core().get(), groups.get(), channel_id, (flags & axcclGroupOrder) != 0));
}
AXCCL_CATCH(axcclChannelCreate)

AXCCL_API ncclResult_t axcclChannelDestroy(axcclChannel_t handle) try {
  constexpr const char* kCall = "axcclChannelDestroy";
  if (const Status status = CheckProcess(kCall); !status.ok()) return Report(status);
  if (handle != nullptr && Comms().Get(handle))
    return InvalidArgument(
        "%s: argument channel (%p) is the default channel of a communicator, which lives as long as that", kCall,
        static_cast<void*>(handle));
  const auto object = Channels().Get(handle);
  if (!object)
    return InvalidArgument("%s: argument channel (%p) is not live; pass a channel once for every time it was created",
                           kCall, static_cast<void*>(handle));
  const CommPin comm = Comms().Get(object->comm);
  auto last = [&] { return object->references.fetch_sub(1, std::memory_order_acq_rel) == 1; };
  // Released when the handle is gone, and with it other threads' calls.
  std::shared_ptr<comm::GroupChannel> released;
  bool gone;
  if (comm && object->channel != nullptr) {
    released = comm->core()->channels().Release(object->channel, last);
    gone = released != nullptr;
  } else {
    gone = last();
  }
  if (gone) Channels().Remove(handle, 1);
  return ncclSuccess;
}
AXCCL_CATCH(axcclChannelDestroy)

AXCCL_API ncclResult_t axcclChannelGetInfo(axcclChannel_t handle, axcclChannelInfo_t* info) try {
  constexpr const char* kCall = "axcclChannelGetInfo";
  ncclResult_t result = ncclSuccess;
  const ChannelPin pin = FindChannel(handle, kCall, &result);
  if (!pin) return result;
  if (info == nullptr || info->size < sizeof(size_t))
    return InvalidArgument("%s: argument info is %s; set info->size = sizeof(axcclChannelInfo_t)", kCall,
                           info == nullptr ? "NULL" : "without its size");
  if (!pin.object && (pin.comm->phase() == comm::Phase::kInitialising || pin.comm->phase() == comm::Phase::kFailed))
    return Report(pin.comm->Ready(kCall).status());
  axcclChannelInfo_t all = pin.object ? pin.object->info : DefaultInfo(pin.comm->core()->identity());
  all.size = std::min(info->size, sizeof(all));
  std::memcpy(info, &all, all.size);
  return ncclSuccess;
}
AXCCL_CATCH(axcclChannelGetInfo)
