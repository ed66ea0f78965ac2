#include "src/comm/channels.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <utility>

#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/base/sizes.h"
#include "src/comm/block.h"
#include "src/comm/channel_slots.h"
#include "src/comm/communicator.h"
#include "src/tensor/replica_groups.h"
#include "transports/shm/heap.h"

namespace axccl::comm {
namespace {

using exec::ChannelLayout;
using exec::ChannelSlot;
using exec::kChannelWords;
using exec::Member;

uint64_t KeyOf(const ChannelName& name, uint32_t generation) {
  constexpr uint64_t kNotZero = uint64_t{1} << 63;
  return KeyIn(Mix(name.Hash(), generation) | kNotZero);
}

uint64_t OffsetIn(const Block& block, const void* memory) {
  return static_cast<uint64_t>(static_cast<const std::byte*>(memory) - block.data());
}

void FreeMemory(void* memory) {
  if (auto heap = shm::Heap::Get(); heap.ok()) (void)heap.value()->Free(memory).ok();
}

}  // namespace

uint64_t ChannelName::Hash() const { return Mix(tensor::ReplicaGroups::GroupHash(ranks), static_cast<uint64_t>(id)); }

std::string ChannelName::Text() const {
  constexpr size_t kShown = 16;
  if (!messages_on.empty())
    return "messages from rank " + std::to_string(ranks[0]) + " to rank " + std::to_string(ranks[1]) + " on " +
           messages_on;
  if (!pipeline_on.empty()) return pipeline_on;
  if (!tag_on.empty()) return tag_on;
  std::string text = "channel " + std::to_string(id) + " of ranks [";
  for (size_t i = 0; i < ranks.size() && i < kShown; ++i) text += (i == 0 ? "" : " ") + std::to_string(ranks[i]);
  if (ranks.size() > kShown) text += " ... of " + std::to_string(ranks.size());
  return text + "]";
}

// ---- one channel ----

GroupChannel::GroupChannel(ChannelTable* table, ChannelName name, Part part, std::vector<Member> members, int self,
                           device::host::TimelinePtr order, bool group_order)
    : exec::Channel(table->comm_, std::move(members), self,
                    {.order = std::move(order),
                     .connector = this,
                     .group_order = group_order,
                     .order_key = part.key,
                     .device = &table->comm_->device()}),
      table_(table),
      name_(std::move(name)),
      part_(part),
      found_(name_.ranks.size(), kNotFound),
      created_(name_.ranks.size()),
      agreed_(name_.ranks.size()) {
  agreed_[static_cast<size_t>(self)] = true;
}

// Does not throw: if there is no memory for noting it for later, the heap loses the part until the communicator ends.
GroupChannel::~GroupChannel() {
  const Status left = CatchAll("leaving a channel", [this] { return Leave(), Status(); });
  if (!left.ok()) AXCCL_WARN("%s", left.message().data());
}

void GroupChannel::PutOn(exec::Channel* on) {
  on->AddPipeline(part_.key, this);
  on_ = on;
  on_hold_ = on->Hold();
}

void GroupChannel::Leave() {
  if (on_ != nullptr) on_->RemovePipeline(part_.key);
  const exec::BlockLayout& layout = table_->comm_->block().layout();
  for (int p = 0; p < size(); ++p) {
    const uint32_t slot = found_[static_cast<size_t>(p)];
    if (slot != kNotFound) layout.SlotOf(BlockOf(member(p)), slot)->users.fetch_sub(1, std::memory_order_seq_cst);
  }
  for (int p = 0; p < size(); ++p) part_.mirrors.push_back(member(p).mirror);
  table_->Withdraw(part_);
}

Result<exec::Channel*> GroupChannel::PairChannel(int position, bool sending) {
  std::shared_ptr<GroupChannel> fresh;
  {
    std::lock_guard lock(pairs_mutex_);
    if (const auto known = pairs_.find({position, sending}); known != pairs_.end() && known->second)
      return known->second.get();
  }
  // The table's lock goes first: who has it looks at the pairs of tags, too.
  std::lock_guard table_lock(table_->mutex_);
  std::lock_guard lock(pairs_mutex_);
  std::shared_ptr<GroupChannel>& pair = pairs_[{position, sending}];
  if (pair == nullptr) {
    const int32_t mine = own().rank, theirs = member(position).rank;
    const int32_t from = sending ? mine : theirs, to = sending ? theirs : mine;
    // A channel for each direction: that a peer has begun one does not mean anything for the other.
    const uint64_t id = Mix(Mix(part_.key, static_cast<uint64_t>(from)), static_cast<uint64_t>(to));
    ChannelName name{static_cast<int64_t>(id), {from, to}, name_.Text()};
    name.on_id = name_.tag_on.empty() ? name_.id : name_.on_id;
    const bool apart = !name_.tag_on.empty();
    AXCCL_RETURN_IF_ERROR(
        table_->MakeUsual(name, apart ? std::make_shared<device::host::Timeline>() : order(), false, &fresh));
    fresh->main_key_ = part_.key;
    if (!apart) AddPair(theirs, sending, fresh.get());
    pair = std::move(fresh);
  }
  return pair.get();
}

void GroupChannel::AddOrdersOfPairs(std::vector<device::host::TimelinePtr>* orders) {
  std::lock_guard lock(pairs_mutex_);
  for (const auto& [place, pair] : pairs_) {
    if (pair != nullptr && pair->order() != order()) orders->push_back(pair->order());
  }
}

// Whether a slot of a peer belongs to this channel.
bool GroupChannel::IsOurs(ChannelSlot* slot) const {
  return slot->id.load(std::memory_order_relaxed) == name_.id && slot->generation == part_.generation &&
         slot->size == name_.ranks.size() && std::equal(name_.ranks.begin(), name_.ranks.end(), slot->Ranks());
}

// The place in a peer's table that has the channel's key.
uint32_t GroupChannel::PlaceAt(const Member& peer) const {
  return PlaceOf(table_->comm_->block().layout(), BlockOf(peer), part_.key).value_or(kNotFound);
}

// Whether the peer had the channel of that key and has released it, as far as the place is still free.
bool GroupChannel::IsGoneFrom(const Member& peer, uint64_t key) const {
  const auto gone = [key](uint64_t word) { return word == (key | exec::kGoneSlot); };
  return FindPlace(table_->comm_->block().layout(), BlockOf(peer), key, gone).has_value();
}

Result<bool> GroupChannel::Find(size_t position, Member* member) {
  const exec::BlockLayout& layout = table_->comm_->block().layout();
  const uint32_t place = PlaceAt(*member);
  if (place == kNotFound) return false;
  const uint64_t word = layout.KeyOf(BlockOf(*member), place)->load(std::memory_order_seq_cst);
  if (KeyIn(word) != part_.key || SlotIn(word) == exec::kGoneSlot) return false;
  SlotUse use(layout, *member, place, word);
  if (!use.valid()) return false;
  ChannelSlot* slot = layout.SlotOf(BlockOf(*member), SlotIn(word));
  const auto not_ours = [&] {
    return MakeStatus(Code::kRemoteError, "rank %d announced something that is not its part of %s", member->rank,
                      name_.Text().c_str());
  };
  const uint64_t offset = slot->offset.load(std::memory_order_relaxed);
  if (offset % kPage != 0 || !IsOurs(slot)) return not_ours();
  if (table_->comm_->device().traits().takes_areas) {
    const uint64_t area = slot->area.load(std::memory_order_acquire);
    created_[position] = true;
    if (area == 0) return false;
    if (area > table_->comm_->settings().gpu_channels)
      return MakeStatus(Code::kRemoteError, "rank %d announced an area that its device does not have", member->rank);
    member->area = static_cast<int>(area) - 1;
  }
  const Result<std::byte*> block =
      member->reach->AddArea(part_.key, part_.memory, offset, part_.bytes, &member->mirror);
  if (block.status().code() == Code::kRemoteError) return not_ours();
  AXCCL_RETURN_IF_ERROR(block.status());
  member->block = block.value();
  use.Keep();
  found_[position] = SlotIn(word);
  std::atomic<uint8_t>* const joined = &slot->Joined(name_.ranks.size())[self()];
  joined->store(1, std::memory_order_seq_cst);
  const auto offset_there = static_cast<uint64_t>(reinterpret_cast<std::byte*>(joined) - BlockOf(*member));
  const transport::Reach::Stretch mark{offset_there, 1, true, false};
  member->reach->PublishAside({&mark, 1}, transport::Reach::kNoLine);
  exec::WakeMember(*member);
  return true;
}

Result<int> GroupChannel::Connect(std::vector<Member>* members) {
  int missing = -1;
  for (size_t p = members->size(); p-- > 0;) {
    if (static_cast<int>(p) == self() || found_[p] != kNotFound) continue;
    AXCCL_ASSIGN_OR_RETURN(const bool found, Find(p, &(*members)[p]));
    if (!found) missing = static_cast<int>(p);
  }
  if (missing >= 0) return missing;
  // A member that has not found our part yet would wait forever if we finished and freed it first.
  for (int p = 0; p < size(); ++p) {
    if (p != self() && !HasJoined(p)) return p;
  }
  return -1;
}

// That of a pipeline has one already.
Result<int> GroupChannel::TakeArea() {
  const std::lock_guard lock(table_->mutex_);
  if (part_.area < 0) AXCCL_RETURN_IF_ERROR(table_->TakeArea(&part_));
  return part_.area;
}

void GroupChannel::PublishArea() {
  const exec::BlockLayout& layout = table_->comm_->block().layout();
  ChannelSlot* slot = layout.SlotOf(table_->comm_->block().data(), part_.slot);
  slot->area.store(static_cast<uint64_t>(part_.area) + 1, std::memory_order_seq_cst);
  const transport::Reach::Stretch area{OffsetIn(table_->comm_->block(), &slot->area), sizeof(uint64_t), false, false};
  for (transport::Reach* const reach : part_.reaches) reach->PublishAside({&area, 1}, transport::Reach::kNoLine);
}

bool GroupChannel::HasJoined(int position) const {
  ChannelSlot* slot = table_->comm_->block().layout().SlotOf(table_->comm_->block().data(), part_.slot);
  return slot->Joined(name_.ranks.size())[position].load(std::memory_order_seq_cst) != 0;
}

// A member creates the channels of one id that it shares with this rank in the order in which this rank does. So if it
// has one that this rank never had, and does not have ours, it will never create ours. Not so of pipelines, which are
// compared in another way, and may have several channels of one id.
Status GroupChannel::CheckMissing(int position) const {
  const Member& peer = member(position);
  const auto index = static_cast<size_t>(position);
  if (found_[index] != kNotFound || created_[index]) return CheckUnused(position);
  const exec::BlockLayout& layout = table_->comm_->block().layout();
  for (uint32_t place = 0; name_.pipeline_on.empty() && place < kChannelWords; ++place) {
    if (layout.KeyOf(BlockOf(peer), place)->load(std::memory_order_relaxed) == 0) continue;
    Status status = CheckOther(peer, place);
    // Ours may have come since the last look, and the other one after it.
    if (!status.ok() && PlaceAt(peer) == kNotFound) return status;
  }
  const bool gone = IsGoneFrom(peer, part_.key) || (main_key_ != 0 && IsGoneFrom(peer, main_key_));
  return gone ? CheckUnused(position) : Status();
}

Status GroupChannel::CheckLeft(int position) const {
  const Member& peer = member(position);
  if (PlaceAt(peer) != kNotFound) return Status();
  return MakeStatus(
      Code::kRemoteError,
      "rank %d waits for rank %d, which has destroyed its end of %s after fewer calls; all ranks must create, "
      "use and destroy a channel equally often",
      own().rank, peer.rank, name_.Text().c_str());
}

// For a member that has created the channel: returns an error if it has left without using it.
Status GroupChannel::CheckUnused(int position) const {
  const Member& peer = member(position);
  if (PlaceAt(peer) != kNotFound || HasJoined(position)) return Status();
  return MakeStatus(Code::kRemoteError,
                    "rank %d waits for rank %d, which has destroyed %s without calling anything on it", own().rank,
                    peer.rank, name_.Text().c_str());
}

Status GroupChannel::CheckOther(const Member& peer, uint32_t place) const {
  const exec::BlockLayout& layout = table_->comm_->block().layout();
  const uint64_t word = layout.KeyOf(BlockOf(peer), place)->load(std::memory_order_seq_cst);
  ChannelSlot* slot = layout.SlotOf(BlockOf(peer), SlotIn(word));
  if (word == 0 || SlotIn(word) == exec::kGoneSlot || KeyIn(word) == part_.key ||
      slot->id.load(std::memory_order_relaxed) != name_.id)
    return Status();
  ChannelName other{name_.id, {}};
  uint32_t generation;
  {
    const SlotUse use(layout, peer, place, word);
    if (!use.valid()) return Status();
    const uint32_t size = slot->size;
    if (size > static_cast<uint32_t>(table_->comm_->identity().ranks)) return Status();
    other.ranks.assign(slot->Ranks(), slot->Ranks() + size);
    generation = slot->generation;
    // In a mirror, another channel's entry may have arrived meanwhile.
    std::atomic_thread_fence(std::memory_order_acquire);
    if (layout.KeyOf(BlockOf(peer), place)->load(std::memory_order_seq_cst) != word) return Status();
  }
  if (std::find(other.ranks.begin(), other.ranks.end(), own().rank) == other.ranks.end()) return Status();
  if (table_->HasCreated(other, generation)) return Status();
  if (other == name_)
    return MakeStatus(Code::kInvalidUsage,
                      "rank %d has created %s %u times, but rank %d has yet to use its instance %u; "
                      "all ranks must create, use and destroy a channel equally often",
                      peer.rank, name_.Text().c_str(), generation + 1, own().rank, part_.generation + 1);
  return MakeStatus(
      Code::kInvalidUsage,
      "groups differ: rank %d uses %s, where rank %d has created %s; ranks must create the channels of one "
      "id with the same groups, in the same order",
      own().rank, name_.Text().c_str(), peer.rank, other.Text().c_str());
}

// ---- all of a rank ----

Result<GroupChannel*> ChannelTable::Acquire(ChannelName name, bool group_order, const Note& note) {
  group_order |= comm_->settings().group_order != 0;
  std::shared_ptr<GroupChannel> channel;
  std::lock_guard lock(mutex_);
  auto it = channels_.find(name);
  const bool made = it == channels_.end();
  if (made) {
    AXCCL_RETURN_IF_ERROR(MakeUsual(name, std::make_shared<device::host::Timeline>(), group_order, &channel));
    it = channels_.emplace(std::move(name), std::move(channel)).first;
  } else if (it->second->group_order() != group_order) {
    return MakeStatus(Code::kInvalidUsage,
                      "argument flags is %s axcclGroupOrder, and %s lives %s it; pass the same flags "
                      "or another channel_id",
                      group_order ? "with" : "without", name.Text().c_str(), group_order ? "without" : "with");
  }
  note(it->second.get(), made);
  return it->second.get();
}

Status ChannelTable::MakeUsual(const ChannelName& name, device::host::TimelinePtr order, bool group_order,
                               std::shared_ptr<GroupChannel>* channel) {
  uint64_t bytes = 0;
  const ChannelLayout layout = ChannelLayout::Created(static_cast<uint32_t>(name.ranks.size()), comm_->settings().lanes,
                                                      comm_->settings().scratch_bytes, &bytes);
  return Make(name, std::move(order), group_order, layout, bytes, nullptr, channel);
}

Status ChannelTable::Make(const ChannelName& name, device::host::TimelinePtr order, bool group_order,
                          const ChannelLayout& layout, uint64_t bytes, const exec::Call* created_call,
                          std::shared_ptr<GroupChannel>* channel) {
  Sweep();
  const Identity& identity = comm_->identity();
  const auto size = static_cast<uint32_t>(name.ranks.size());
  GroupChannel::Part part;
  part.bytes = bytes;
  // An id that is derived from another channel's key is never used again.
  for (const int32_t rank : name.ranks) part.reaches.push_back(comm_->members()[static_cast<size_t>(rank)].reach);
  uint32_t once = 0;
  const bool derived = !name.messages_on.empty() || !name.pipeline_on.empty() || !name.tag_on.empty();
  uint32_t& created = derived ? once : created_[name.Hash()];
  part.generation = created;
  part.key = KeyOf(name, created);
  AXCCL_RETURN_IF_ERROR(Enter(&part));
  AXCCL_ASSIGN_OR_RETURN(shm::Heap * heap, shm::Heap::Get());
  std::vector<Member> members;
  members.reserve(size);
  for (const int32_t rank : name.ranks) {
    Member& member = members.emplace_back(comm_->members()[static_cast<size_t>(rank)]);
    member.layout = layout;
    member.block = nullptr;
  }
  const auto self = std::find(name.ranks.begin(), name.ranks.end(), identity.rank) - name.ranks.begin();
  AXCCL_ASSIGN_OR_RETURN(void* memory, heap->Allocate(part.bytes, kPage));
  part.memory = members[static_cast<size_t>(self)].block = static_cast<std::byte*>(memory);
  const Status made = CatchAll("making a channel", [&] {
    *channel = std::make_shared<GroupChannel>(this, name, part, std::move(members), static_cast<int>(self),
                                              std::move(order), group_order);
    return Status();
  });
  if (!made.ok()) {
    FreeMemory(memory);
    return made;
  }
  ++created;
  taken_.set(part.place);
  if (free_slots_.empty()) {
    ++used_slots_;
  } else {
    free_slots_.pop_back();
  }

  FillSlot(**channel, static_cast<uint64_t>(part.memory - heap->base()), created_call);
  for (int p = 0; p < (*channel)->size(); ++p) {
    if (p != (*channel)->self()) exec::WakeMember((*channel)->member(p));
  }
  return Status();
}

void ChannelTable::FillSlot(const GroupChannel& channel, uint64_t offset, const exec::Call* created_call) {
  const GroupChannel::Part& part = channel.part();
  const std::vector<int32_t>& ranks = channel.name().ranks;
  const exec::BlockLayout& table = comm_->block().layout();
  std::byte* const block = comm_->block().data();
  ChannelSlot* slot = table.SlotOf(block, part.slot);
  slot->offset.store(offset, std::memory_order_relaxed);
  slot->id.store(channel.name().id, std::memory_order_relaxed);
  slot->area.store(0, std::memory_order_relaxed);
  slot->generation = part.generation;
  slot->size = static_cast<uint32_t>(ranks.size());
  const ChannelName& name = channel.name();
  const bool on_other = !name.messages_on.empty() || !name.pipeline_on.empty() || !name.tag_on.empty();
  slot->use = (!name.messages_on.empty()   ? ChannelSlot::kMessages
               : !name.pipeline_on.empty() ? ChannelSlot::kPipeline
                                           : ChannelSlot::kCalls) |
              (on_other && !name.on_id ? ChannelSlot::kOfCommunicator : ChannelSlot::kCalls);
  slot->on = name.on_id.value_or(name.id);
  const ChannelLayout& layout = channel.own().layout;
  slot->records = layout.lanes != 0 ? static_cast<uint32_t>(layout.num_records) : 0;
  std::copy(ranks.begin(), ranks.end(), slot->Ranks());
  std::memset(static_cast<void*>(slot->Joined(ranks.size())), 0, ranks.size());
  std::atomic<uint64_t>* const words = table.CreatedCallOf(block, part.slot);
  if (created_call != nullptr) exec::RecordedCall::Write(*created_call, words);
  table.KeyOf(block, part.place)->store(part.key | part.slot, std::memory_order_seq_cst);
  // Sends everything except the count of users, which members keep in their mirrors.
  constexpr size_t kUsers = offsetof(ChannelSlot, users), kBehind = offsetof(ChannelSlot, area);
  const uint64_t at = OffsetIn(comm_->block(), slot);
  const auto behind = static_cast<uint32_t>(sizeof(ChannelSlot) - kBehind + ranks.size() * sizeof(int32_t));
  const auto of_call = static_cast<uint32_t>(exec::OpRecord::kCallWords * sizeof(uint64_t));
  const transport::Reach::Stretch sent[] = {{at, kUsers, false, false},
                                            {at + kBehind, behind, false, false},
                                            {OffsetIn(comm_->block(), words), of_call, false, false}};
  PublishEntry(part, std::span(sent).first(created_call != nullptr ? 3 : 2));
}

Status ChannelTable::Enter(GroupChannel::Part* part) const {
  if (!free_slots_.empty() || used_slots_ < exec::kGoneSlot) {
    part->slot = free_slots_.empty() ? used_slots_ : free_slots_.back();
    for (uint32_t probe = 0; probe < exec::kSlotProbes; ++probe) {
      part->place = exec::PlaceOfKey(part->key, probe);
      if (!taken_.test(part->place)) return Status();
    }
  }
  return MakeStatus(Code::kInvalidUsage,
                    "rank %d has %zu channels, about as many as a rank of a communicator can have at a "
                    "time (%u); destroy some, on all their ranks",
                    comm_->identity().rank, taken_.count(), exec::kGoneSlot);
}

Status ChannelTable::CheckAreas(size_t needed) {
  Sweep();
  const uint32_t most = comm_->settings().gpu_channels;
  areas_.resize(most);
  if (static_cast<size_t>(std::count(areas_.begin(), areas_.end(), false)) >= needed) return Status();
  return MakeStatus(Code::kInvalidUsage,
                    "rank %d uses %zu channels of its own on its CUDA device (one for the messages of a channel with "
                    "each peer and in "
                    "each direction among them), and there is room for %u; destroy some, on all their ranks, or raise "
                    "AXCCL_GPU_CHANNELS",
                    comm_->identity().rank, static_cast<size_t>(std::count(areas_.begin(), areas_.end(), true)), most);
}

Status ChannelTable::TakeArea(GroupChannel::Part* part) {
  AXCCL_RETURN_IF_ERROR(CheckAreas(1));
  const auto free = std::find(areas_.begin(), areas_.end(), false);
  *free = true;
  part->area = static_cast<int>(free - areas_.begin());
  return Status();
}

std::shared_ptr<GroupChannel> ChannelTable::Release(GroupChannel* channel, const std::function<bool()>& last) {
  std::lock_guard lock(mutex_);
  // First, because it may throw; channels that are removed must be destroyed without the lock.
  const uint64_t key = channel->order_key();
  const auto tags = std::pair(tags_.lower_bound({key, 0}), tags_.lower_bound({key + 1, 0}));
  std::vector<device::host::TimelinePtr> orders{channel->order()};
  for (auto tag = tags.first; tag != tags.second; ++tag) {
    orders.push_back(tag->second->order());
    tag->second->AddOrdersOfPairs(&orders);
  }
  retired_.reserve(retired_.size() + orders.size());
  channel->tags.reserve(static_cast<size_t>(std::distance(tags.first, tags.second)));
  if (!last()) return nullptr;
  const auto it = channels_.find(channel->name());
  std::shared_ptr<GroupChannel> released = std::move(it->second);
  channels_.erase(it);
  std::move(orders.begin(), orders.end(), std::back_inserter(retired_));
  for (auto tag = tags.first; tag != tags.second; ++tag) released->tags.push_back(std::move(tag->second));
  tags_.erase(tags.first, tags.second);
  return released;
}

void ChannelTable::Withdraw(const GroupChannel::Part& part) {
  std::lock_guard lock(mutex_);
  comm_->block()
      .layout()
      .KeyOf(comm_->block().data(), part.place)
      ->store(part.key | exec::kGoneSlot, std::memory_order_seq_cst);
  PublishEntry(part, {});
  if (!TryFree(part)) limbo_.push_back(part);
}

void ChannelTable::PublishEntry(const GroupChannel::Part& part,
                                std::span<const transport::Reach::Stretch> stretches) const {
  const uint64_t word = OffsetIn(comm_->block(), comm_->block().layout().KeyOf(comm_->block().data(), part.place));
  const uint64_t line = word / transport::Reach::kLineBytes * transport::Reach::kLineBytes;
  // Sends parts that take effect in their order: the slot may be read until an earlier line has marked it as unused.
  constexpr uint32_t kPart = transport::Reach::kLargeBytes / 2;
  for (transport::Reach* reach : part.reaches) {
    std::vector<transport::Reach::Stretch> last;
    for (transport::Reach::Stretch rest : stretches) {
      for (; rest.bytes > kPart; rest.offset += kPart, rest.bytes -= kPart) {
        const transport::Reach::Stretch first{rest.offset, kPart, false, false};
        reach->PublishAside({&first, 1}, transport::Reach::kNoLine);
      }
      last.push_back(rest);
    }
    reach->PublishAside(last, line);
  }
}

// Whether a rank of another machine still has its part of that channel, and may read the area of this rank's device in
// its mirror. (It counts as user of the slot only there.)
bool ChannelTable::MayReadArea(const transport::Reach& reach, uint64_t key) const {
  if (reach.inbox() == nullptr || reach.Died()) return false;
  return PlaceOf(comm_->block().layout(), reach.block(), key).has_value();
}

bool ChannelTable::TryFree(const GroupChannel::Part& part) {
  const auto reads_area = [&](const transport::Reach* reach) { return MayReadArea(*reach, part.key); };
  if (part.area >= 0 && std::any_of(part.reaches.begin(), part.reaches.end(), reads_area)) return false;
  const ChannelSlot* slot = comm_->block().layout().SlotOf(comm_->block().data(), part.slot);
  if (slot->users.load(std::memory_order_seq_cst) != 0) return false;
  // Operations that are still running hold the areas, and so do messages that are being stored. No message finds an
  // area that is gone.
  if (std::any_of(part.mirrors.begin(), part.mirrors.end(), [](const auto& mirror) { return !mirror.expired(); }))
    return false;
  std::atomic_thread_fence(std::memory_order_acquire);  // of what was stored before the last holder let go
  free_slots_.push_back(part.slot);                     // first, so that an exception leaves everything unchanged
  FreeMemory(part.memory);
  if (part.area >= 0) areas_[static_cast<size_t>(part.area)] = false;
  taken_.reset(part.place);
  return true;
}

void ChannelTable::Sweep() {
  std::erase_if(limbo_, [this](const GroupChannel::Part& part) { return TryFree(part); });
  std::erase_if(retired_, [](const device::host::TimelinePtr& order) { return order->Idle(); });
}

bool ChannelTable::HasCreated(const ChannelName& name, uint32_t generation) {
  std::lock_guard lock(mutex_);
  const auto it = created_.find(name.Hash());
  return it != created_.end() && it->second > generation;
}

std::vector<device::host::Mark> ChannelTable::Outstanding() {
  std::lock_guard lock(mutex_);
  std::vector<device::host::Mark> marks;
  for (const auto& [name, channel] : channels_) marks.push_back({channel->order(), channel->order()->issued()});
  std::vector<device::host::TimelinePtr> orders;
  for (const auto& [key, tag] : tags_) {
    marks.push_back({tag->order(), tag->order()->issued()});
    tag->AddOrdersOfPairs(&orders);
  }
  for (device::host::TimelinePtr& order : orders) marks.push_back({order, order->issued()});
  for (const device::host::TimelinePtr& order : retired_) marks.push_back({order, order->issued()});
  return marks;
}

std::vector<void*> ChannelTable::Close() {
  std::map<ChannelName, std::shared_ptr<GroupChannel>> channels;
  std::map<std::pair<uint64_t, int>, std::shared_ptr<GroupChannel>> tags;
  {
    std::lock_guard lock(mutex_);
    channels.swap(channels_);
    tags.swap(tags_);
  }
  tags.clear();
  channels.clear();
  std::lock_guard lock(mutex_);
  Sweep();
  std::vector<void*> used;
  for (const GroupChannel::Part& part : limbo_) used.push_back(part.memory);
  limbo_.clear();
  return used;
}

uint64_t ChannelTable::resident_bytes() {
  std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [name, channel] : channels_) bytes += ResidentBytes(channel->part().memory, channel->part().bytes);
  for (const GroupChannel::Part& part : limbo_) bytes += ResidentBytes(part.memory, part.bytes);
  return bytes;
}

}  // namespace axccl::comm
