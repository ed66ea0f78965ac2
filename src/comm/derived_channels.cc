// Channels whose names derive from that of another one: those of pipelines, and of tags.
#include <algorithm>
#include <string>
#include <utility>

#include "src/base/hash.h"
#include "src/base/sizes.h"
#include "src/comm/channels.h"
#include "src/comm/communicator.h"

namespace axccl::comm {

using exec::ChannelLayout;

Result<std::vector<GroupChannel*>> ChannelTable::AddForPipeline(exec::Channel* on, const std::string& on_name,
                                                                const exec::Call& call, std::span<const Needs> needs) {
  constexpr uint64_t kPipelines = 0x9e37;
  std::vector<std::shared_ptr<GroupChannel>> made;  // destroyed without the lock, if one of them fails
  made.reserve(needs.size());
  std::lock_guard lock(mutex_);
  const bool takes_areas = comm_->device().traits().takes_areas;
  const auto runs = [](const Needs& need) { return need.lanes != 0; };
  if (takes_areas)
    AXCCL_RETURN_IF_ERROR(CheckAreas(static_cast<size_t>(std::count_if(needs.begin(), needs.end(), runs))));
  uint32_t& number = pipelines_[on->order_key()];
  const uint64_t id = Mix(Mix(on->order_key(), kPipelines), number);
  std::optional<int64_t> on_id;
  if (on->Hold() != nullptr) on_id = static_cast<GroupChannel*>(on)->name().id;
  std::vector<GroupChannel*> channels;
  for (const Needs& need : needs) {
    const bool first = channels.empty();  // others may have the same ranks
    const ChannelName name{static_cast<int64_t>(first ? id : Mix(id, kPipelines)),  need.ranks, "",
                           "pipeline " + std::to_string(number) + " on " + on_name, "",         on_id};
    uint64_t bytes = kCacheLine;
    ChannelLayout layout;
    // Launches on GPUs run ahead.
    const uint32_t records = takes_areas ? exec::kRecords : exec::kRecordsOfPipeline;
    if (runs(need)) layout = ChannelLayout::ForPlan(need.lanes, need.endpoints, need.scratch_bytes, records, &bytes);
    made.emplace_back();
    AXCCL_RETURN_IF_ERROR(
        Make(name, on->order(), on->group_order(), layout, bytes, first ? &call : nullptr, &made.back()));
    channels.push_back(made.back().get());
    if (takes_areas && runs(need)) AXCCL_RETURN_IF_ERROR(TakeArea(&made.back()->part_));
  }
  for (const std::shared_ptr<GroupChannel>& channel : made) {
    channel->PutOn(on);
    channels_.emplace(channel->name(), channel);
  }
  ++number;
  return channels;
}

Result<GroupChannel*> ChannelTable::TagOn(exec::Channel* on, int tag) {
  constexpr uint64_t kTags = 0x7a9;
  std::shared_ptr<GroupChannel> fresh;
  std::lock_guard lock(mutex_);
  if (const auto known = tags_.find({on->order_key(), tag}); known != tags_.end()) return known->second.get();
  const uint64_t id = Mix(Mix(on->order_key(), kTags), static_cast<uint64_t>(tag));
  ChannelName name{static_cast<int64_t>(id), {}};
  for (int p = 0; p < on->size(); ++p) name.ranks.push_back(on->member(p).rank);
  const bool created = on->Hold() != nullptr;
  if (created) name.on_id = static_cast<GroupChannel*>(on)->name().id;
  name.tag_on = "tag " + std::to_string(tag) + " of " +
                (created ? static_cast<GroupChannel*>(on)->name().Text() : std::string("the communicator"));
  AXCCL_RETURN_IF_ERROR(
      Make(name, std::make_shared<device::host::Timeline>(), false, ChannelLayout(), kCacheLine, nullptr, &fresh));
  return tags_.emplace(std::pair(on->order_key(), tag), std::move(fresh)).first->second.get();
}

}  // namespace axccl::comm
