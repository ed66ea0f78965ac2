// Handles of replica groups and channels, and what a call on a channel needs of it.
#pragma once

#include <atomic>
#include <cstdint>

#include "axccl/channels.h"
#include "src/api/context.h"
#include "src/comm/channels.h"
#include "src/tensor/replica_groups.h"

namespace axccl::api {

// What an axcclGroups_t stands for.
struct GroupsObject {
  tensor::ReplicaGroups groups;
  tensor::Grid grid;
};

HandleTable<GroupsObject>& GroupsTable();
using GroupsPin = HandleTable<GroupsObject>::Pin;
Result<GroupsPin> PinGroups(axcclGroups_t groups, const char* call);

// What an axcclChannel_t stands for that is not a communicator's handle. The communicator may be gone.
struct ChannelObject {
  ncclComm_t comm = nullptr;
  comm::GroupChannel* channel =
      nullptr;  // alive as long as this and the communicator are; null: the rank is in no group
  axcclChannelInfo_t info{};
  axcclChannel_t handle = nullptr;
  std::atomic<int> references{1};
};

// This rank in the group of a channel.
struct GroupPlace {
  int rank = 0;
  int ranks = 1;
};

// A channel, default or created, pinned for the time of a call.
struct ChannelPin {
  CommPin comm;
  HandleTable<ChannelObject>::Pin object;  // empty for a default channel
  exec::Channel* channel = nullptr;
  GroupPlace place;
};

// The channel behind a handle, on which this rank can call `call`. An error when there is none, its communicator takes
// no calls, or this rank is in no group of it. With `outside` such a rank gets the communicator's default channel, for
// the order of what it does by itself, and a place with ranks = 0.
Result<ChannelPin> PinChannel(axcclChannel_t channel, const char* call, bool outside = false);

// The channel of the messages between this rank and another one of its group.
Result<exec::Channel*> PairOf(const char* call, const ChannelPin& pin, int peer, bool sending);

}  // namespace axccl::api
