// Handles of replica groups and channels, and the lookups that a call on a channel needs.
#pragma once

#include <atomic>
#include <cstdint>

#include "axccl/channels.h"
#include "src/api/context.h"
#include "src/comm/channels.h"
#include "src/tensor/replica_groups.h"

namespace axccl::api {

// The object behind an axcclGroups_t.
struct GroupsObject {
  tensor::ReplicaGroups groups;
  tensor::Grid grid;
};

HandleTable<GroupsObject>& GroupsTable();
using GroupsPin = HandleTable<GroupsObject>::Pin;
Result<GroupsPin> PinGroups(axcclGroups_t groups, const char* call);

// The object behind an axcclChannel_t that is not a communicator's handle. The communicator may no longer exist.
struct ChannelObject {
  ncclComm_t comm = nullptr;
  comm::GroupChannel* channel =
      nullptr;  // alive as long as this and the communicator are; null: the rank is in no group
  axcclChannelInfo_t info{};
  axcclChannel_t handle = nullptr;
  std::atomic<int> references{1};
};

// This rank's place in the group of a channel.
struct GroupPlace {
  int rank = 0;
  int ranks = 1;
};

// A channel, default or created, pinned for the duration of a call.
struct ChannelPin {
  CommPin comm;
  HandleTable<ChannelObject>::Pin object;  // empty for a default channel
  exec::Channel* channel = nullptr;
  GroupPlace place;
};

// Finds the channel behind a handle, on which this rank can call `call`. Returns an error if there is none, its
// communicator accepts no calls, or this rank is in no group of it. With `outside`, a rank in no group gets the
// communicator's default channel, for ordering its local work, and a place with ranks = 0.
Result<ChannelPin> PinChannel(axcclChannel_t channel, const char* call, bool outside = false);

// The channel of the messages with that tag between this rank and another one of its group.
Result<exec::Channel*> PairOf(const char* call, const ChannelPin& pin, int peer, bool sending, int tag = 0);
// The channel in whose order the messages of the rank to itself with that tag are.
Result<exec::Channel*> OrderOf(const char* call, const ChannelPin& pin, int tag);

}  // namespace axccl::api
