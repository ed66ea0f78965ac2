#include "src/comm/setup.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>

#include "src/base/format.h"
#include "src/base/log.h"
#include "src/base/param.h"
#include "src/base/processors.h"
#include "src/base/rank_list.h"
#include "src/base/sizes.h"
#include "src/comm/device_setup.h"
#include "src/comm/net/address.h"
#include "src/comm/net/network.h"
#include "src/comm/net/placement.h"
#include "src/comm/net/places.h"
#include "src/comm/net/survey.h"
#include "src/comm/watchdog.h"
#include "src/device/host/waiting.h"
#include "src/topo/crowding.h"
#include "transports/remote/lines.h"
#include "transports/shm/connect.h"
#include "transports/shm/heap.h"
#include "transports/shm/host_id.h"
#include "transports/tcp/connect.h"
#include "transports/ucx/connect.h"

namespace axccl::comm {
namespace {

constexpr int kMostToMeet = 64;
constexpr std::chrono::milliseconds kMeeting(500);

// First round: identity of the rank; rank 0 also sends what all ranks do.
struct Introduction {
  uint32_t rank;
  int32_t device;
  uint32_t platform;
  uint64_t hash;  // rank 0's value is used
  transport::ProcessAddress address;
  exec::Cores cores;
  char host[64];                  // name
  uint8_t may_use_ucx;            // a rank's network address may have UCX's addresses in it
  topo::ProcessorSet processors;  // that the rank may use
  Settings settings;
};
static_assert(sizeof(Introduction) <= 3000);

// Second round: the address of this rank's block; rank 0 also sends the state of the network. Third round: the peers
// whose plain memory this rank can access. Between the first two, if ranks are on several machines: how to send to this
// process (WireNetwork).
struct BlockAddress {
  uint64_t offset;  // in my heap
  uint64_t probe;   // address of the block's probe word in my address space
  NetworkSurvey::News network;
};
struct Reachable {
  uint8_t all;
};

uint64_t RandomHash() {
  uint64_t hash = 0;
  if (getrandom(&hash, sizeof(hash), GRND_NONBLOCK) != sizeof(hash))
    hash = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return hash;
}

Result<Settings> ReadSettings(const SetupOptions& options) {
  Settings settings;
  if (options.inherit != nullptr) {
    settings = *options.inherit;
  } else {
    settings.scratch_bytes = static_cast<uint64_t>(param::GetInt("AXCCL_SCRATCH_BYTES"));
    settings.map_bytes = static_cast<uint64_t>(param::GetInt("AXCCL_MAP_BYTES"));
    settings.grow_bytes = static_cast<uint64_t>(param::GetInt("AXCCL_GROW_BYTES"));
    settings.grown_scratch_bytes = static_cast<uint64_t>(param::GetInt("AXCCL_GROWN_SCRATCH_BYTES"));
    settings.allow_calls = param::Get("AXCCL_CMA") != "0";
    settings.group_order = param::Get("AXCCL_ORDER") == "group";
    settings.gpu_channels = static_cast<uint32_t>(param::GetInt("AXCCL_GPU_CHANNELS"));
    const std::string algorithms = param::Get("NCCL_ALGO");
    if (algorithms.size() >= sizeof(settings.algorithms))
      return MakeStatus(Code::kInvalidUsage, "NCCL_ALGO has %zu characters, at most %zu are accepted",
                        algorithms.size(), sizeof(settings.algorithms) - 1);
    std::memcpy(settings.algorithms, algorithms.data(), algorithms.size());
  }
  const exec::DeviceId& device = options.identity.device;
  // Rank 0 decides: if all measured, they would disturb each other.
  const bool measures = options.inherit == nullptr && options.identity.rank == 0;
  AXCCL_ASSIGN_OR_RETURN(const exec::Capacity capacity,
                         device.platform->Measure(device.ordinal, options.identity.ranks, options.lanes,
                                                  measures ? nullptr : &settings.machine));
  settings.machine = capacity.machine;
  settings.lanes = capacity.lanes;
  settings.least_lanes = capacity.least_lanes;
  settings.most_blocks = static_cast<uint32_t>(options.lanes.most);
  return settings;
}

// Lists the ranks that share no memory with this one: "ranks 0-3 (another machine), rank 7 (another PID namespace)"; ""
// if there are none.
std::string ListApart(const std::vector<Introduction>& peers, size_t self) {
  const auto why = [&](int rank) {
    const char* const reason =
        shm::WhyApart(peers[static_cast<size_t>(rank)].address.host_id, peers[self].address.host_id);
    return std::string_view(reason == nullptr ? "" : reason);
  };
  const int ranks = static_cast<int>(peers.size());
  std::set<std::string_view> listed{""};
  std::string text;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string_view reason = why(rank);
    if (!listed.insert(reason).second) continue;
    text += (text.empty() ? "" : ", ") + ListRanks(ranks, [&](int other) { return why(other) == reason; });
    text.append(" (").append(reason).append(")");
  }
  return text;
}

// A platform that this version does not know is shown as the host.
std::string DeviceText(const Introduction& peer) {
  const exec::Platform& cuda = exec::Platform::Cuda();
  const exec::Platform& platform = peer.platform == cuda.number() ? cuda : exec::Platform::Host();
  return platform.NameOf(peer.device);
}

void SendFailure(Exchange* exchange, const Status& why) {
  const Status sent = CatchAll("a message", [&] { return exchange->Fail(why), Status(); });
  if (!sent.ok()) AXCCL_WARN("cannot inform the others that this rank gives up: %s", sent.message().data());
}

// The state of one rank's setup; every way out releases what it has acquired.
class Builder {
 public:
  Builder(Exchange* exchange, const SetupOptions& options) : exchange_(exchange), options_(options) {}

  Result<std::shared_ptr<Communicator>> Run() {
    AXCCL_RETURN_IF_ERROR(device::host::Scheduler::Process().StartProgress());
    AXCCL_RETURN_IF_ERROR(Introduce());
    FindPlace();
    if (spans_machines_) AXCCL_RETURN_IF_ERROR(ShareNetworkAddresses());
    AXCCL_RETURN_IF_ERROR(ShareBlocks());
    AXCCL_RETURN_IF_ERROR(MakeDevice());
    AXCCL_RETURN_IF_ERROR(TestCalls());
    if (spans_machines_) AXCCL_RETURN_IF_ERROR(LearnNetwork());
    return Finish();
  }

 private:
  size_t ranks() const { return static_cast<size_t>(options_.identity.ranks); }
  size_t self() const { return static_cast<size_t>(options_.identity.rank); }
  const exec::Platform& platform() const { return *options_.identity.device.platform; }

  Status Introduce() {
    // Before other ranks know of this one and wait for it.
    AXCCL_RETURN_IF_ERROR(platform().ReadOptions(&device_options_));
    Introduction mine{};
    mine.rank = static_cast<uint32_t>(self());
    mine.device = options_.identity.device.ordinal;
    mine.platform = platform().number();
    mine.hash = RandomHash();
    AXCCL_ASSIGN_OR_RETURN(mine.address, shm::SelfAddress());
    AXCCL_ASSIGN_OR_RETURN(shm::Heap * heap, shm::Heap::Get());
    device::host::Doorbells::Process().Adopt(heap->page());
    if (self() == 0) {
      AXCCL_ASSIGN_OR_RETURN(mine.settings, ReadSettings(options_));
    }
    AXCCL_ASSIGN_OR_RETURN(mine.cores, platform().CoresOf(options_.identity.device.ordinal));
    mine.processors = topo::SetOf(AllowedProcessors());
    (void)gethostname(mine.host, sizeof(mine.host));
    mine.may_use_ucx = MayUseUcx();
    peers_.resize(ranks());
    AXCCL_RETURN_IF_ERROR(exchange_->AllGather(&mine, sizeof(mine), peers_.data()));
    for (Introduction& peer : peers_) {
      peer.host[sizeof(peer.host) - 1] = 0;
      if (peer.platform != peers_[0].platform)
        return MakeStatus(Code::kInvalidUsage,
                          "rank 0 lives on %s and rank %u on %s; all ranks of a communicator need one kind "
                          "of device: set AXCCL_DEVICE alike",
                          DeviceText(peers_[0]).c_str(), peer.rank, DeviceText(peer).c_str());
      spans_machines_ |= peer.address.host_id != peers_[0].address.host_id;
    }
    if (spans_machines_)
      AXCCL_INFO(kInit, "comm %s %016llx rank %zu shares no memory with these and sends them messages: %s",
                 options_.identity.name.c_str(), static_cast<unsigned long long>(peers_[0].hash), self(),
                 ListApart(peers_, self()).c_str());
    FindPlaces();
    settings_ = peers_[0].settings;
    CountCores();
    settings_.notice_seconds =
        options_.inherit != nullptr ? options_.inherit->notice_seconds : param::GetSeconds("AXCCL_WAIT_NOTICE");
    if (spans_machines_) settings_.lanes = std::max(settings_.lanes, static_cast<uint32_t>(tune::kNetworkLanes));
    settings_.algorithms[sizeof(settings_.algorithms) - 1] = 0;
    return MakeChooser();
  }

  // All ranks choose the same plans, so the smallest GPU counts, and the one with the most ranks.
  void CountCores() {
    if (platform().works_on_host()) {
      settings_.machine.cores = topo::CountTogether(ProcessorsOnMachineOf(0));
      return;
    }
    settings_.machine.cores = peers_[0].cores.count;
    for (const Introduction& peer : peers_)
      settings_.machine.cores = std::min(settings_.machine.cores, peer.cores.count);
    settings_.machine.ranks = std::max(settings_.machine.ranks, places_.MostRanksOfCores());
    settings_.lanes = std::min(settings_.lanes, static_cast<uint32_t>(std::max(1, settings_.machine.cores)));
  }

  // If several threads of a process create ranks, each parses the filter, and all get the same error.
  Status MakeChooser() {
    AXCCL_ASSIGN_OR_RETURN(
        chooser_,
        tune::Chooser::Create(settings_.machine, settings_.algorithms, settings_.scratch_bytes / plan::kRotation,
                              static_cast<int>(settings_.lanes), static_cast<int>(settings_.least_lanes)));
    return Status();
  }

  void FindPlace() {
    local_ = {0, 0, {}};
    for (size_t rank = 0; rank < ranks(); ++rank) {
      if (places_.IsRemote(rank)) continue;
      if (rank == self()) local_.self = local_.count;
      if (peers_[rank].address.process_id == peers_[self()].address.process_id)
        local_.of_process.push_back(local_.count);
      ++local_.count;
    }
    if (options_.inherit == nullptr) DumpTopology(options_.identity.rank);
    if (platform().works_on_host()) node_ = PlaceRank(options_.identity.device.ordinal, local_);
  }

  Status ShareNetworkAddresses() {
    AXCCL_ASSIGN_OR_RETURN(LocalNetwork local, FindNetwork(local_));
    local.self.process = peers_[self()].address.process_id;
    // A process that prefers UCX is also reached by those that have TCP only.
    AXCCL_ASSIGN_OR_RETURN(remote::NetworkAddress address,
                           local.over_ucx ? ucx::SelfAddress(local.self) : tcp::SelfAddress(local.self));
    if (local.over_ucx) AXCCL_RETURN_IF_ERROR(tcp::Serve(local.self.sealing, &address));
    over_ucx_ = local.over_ucx;
    const NetworkText text = DescribeNetwork(local.devices, local.address, local.networks);
    AXCCL_ASSIGN_OR_RETURN(const WireNetwork mine, Pack(address, text));
    const auto may = [](const Introduction& peer) { return peer.may_use_ucx != 0; };
    network_bytes_ = std::any_of(peers_.begin(), peers_.end(), may) ? sizeof(WireNetwork) : offsetof(WireNetwork, data);
    networks_.resize(ranks() * network_bytes_);
    AXCCL_RETURN_IF_ERROR(exchange_->AllGather(&mine, network_bytes_, networks_.data()));
    std::vector<NetworkText> texts;
    for (size_t rank = 0; rank < ranks(); ++rank) texts.push_back(NetworkOf(rank).text);
    survey_.FindClasses(places_.machines(), texts);
    std::vector<std::array<uint8_t, 16>> mates;
    for (size_t rank = 0; rank < ranks(); ++rank) {
      const bool own = places_.ProcessOf(rank) == places_.ProcessOf(self());
      if (!places_.IsRemote(rank) && !own && places_.IsFirstOfProcess(rank))
        mates.push_back(peers_[rank].address.process_id);
    }
    return remote::Lines::Made()->AddMates(mates);
  }

  WireNetwork NetworkOf(size_t rank) const {
    WireNetwork network{};
    std::memcpy(&network, networks_.data() + rank * network_bytes_, network_bytes_);
    return network;
  }

  void FindPlaces() {
    std::vector<Places::Place> places;
    for (const Introduction& peer : peers_)
      places.push_back({peer.address.host_id, peer.address.process_id, peer.cores.device});
    places_ = Places(std::move(places), self());
  }

  // Of each rank on the machine of `rank`.
  std::vector<topo::ProcessorSet> ProcessorsOnMachineOf(size_t rank) const {
    std::vector<topo::ProcessorSet> processors;
    for (const Introduction& peer : peers_) {
      if (peer.address.host_id == peers_[rank].address.host_id) processors.push_back(peer.processors);
    }
    return processors;
  }

  // How this rank reaches another one is chosen here.
  Result<std::shared_ptr<transport::Reach>> Connect(size_t rank) {
    return places_.IsRemote(rank) ? ConnectApart(rank) : ConnectHere(rank);
  }

  Result<std::shared_ptr<transport::Reach>> ConnectHere(size_t rank) const {
    AXCCL_ASSIGN_OR_RETURN(auto reach, shm::Connect({.rank = static_cast<int>(rank),
                                                     .address = peers_[rank].address,
                                                     .block = blocks_[rank].offset,
                                                     .block_bytes = layout_.bytes,
                                                     .deadline = options_.deadline,
                                                     .abort = options_.abort}));
    const auto* header = reinterpret_cast<const exec::BlockHeader*>(reach->block());
    if (header->magic != exec::BlockHeader::kMagic || header->rank != rank || header->ranks != ranks())
      return MakeStatus(Code::kRemoteError, "rank %zu announced something that is not its block", rank);
    return reach;
  }

  // From now on, data for this rank can arrive in its block and in the peer's mirror.
  Result<std::shared_ptr<transport::Reach>> ConnectApart(size_t rank) {
    exec::Member own;
    own.header = block_->header();
    own.reach = own_.get();
    remote::ConnectOptions options;
    options.comm = peers_[0].hash;
    options.self = static_cast<uint32_t>(self());
    options.peer = static_cast<uint32_t>(rank);
    options.process = peers_[rank].address.process_id;
    AXCCL_ASSIGN_OR_RETURN(options.address, Unpack(NetworkOf(rank), rank));
    options.pid = peers_[rank].address.pid;
    options.host = Printable(peers_[rank].host);
    options.block = block_->data();
    options.block_bytes = layout_.bytes;
    options.arrived = [own, keep = own_] { exec::WakeMember(own); };
    options.machine = places_.MachineNumber(rank);
    options.watch = places_.Watches(rank);
    options.relays = places_.RelaysTo(rank);
    const auto first = static_cast<size_t>(places_.ProcessOf(rank));
    if (first < rank) options.sibling = reaches_[first].get();
    const bool both_have_ucx = over_ucx_ && !options.address.rails[0].worker.empty();
    return both_have_ucx ? ucx::Connect(std::move(options)) : tcp::Connect(std::move(options));
  }

  Status ShareBlocks() {
    layout_ = exec::BlockLayout::Make(static_cast<uint32_t>(ranks()), settings_.lanes, settings_.scratch_bytes,
                                      spans_machines_);
    AXCCL_ASSIGN_OR_RETURN(block_, Block::Create(static_cast<int>(self()), static_cast<int>(ranks()), layout_, node_));
    block_->header()->probe = RandomHash();
    BlockAddress mine{block_->heap_offset(), reinterpret_cast<uint64_t>(&block_->header()->probe), {}};
    if (self() == 0) mine.network = survey_.Recall(cost::NetworkOf(settings_.machine), settings_.network);
    blocks_.resize(ranks());
    announced_ = true;  // whatever fails from here on, others may know of the block
    AXCCL_RETURN_IF_ERROR(exchange_->AllGather(&mine, sizeof(mine), blocks_.data()));
    located_ = true;
    AXCCL_ASSIGN_OR_RETURN(own_, ConnectHere(self()));
    members_.reserve(ranks());  // a member has its reach
    reaches_.reserve(ranks());
    for (size_t rank = 0; rank < ranks(); ++rank) {
      AXCCL_ASSIGN_OR_RETURN(auto reach, Connect(rank));
      exec::Member member;
      member.rank = static_cast<int>(rank);
      member.machine = places_.MachineOf(rank);
      member.process = places_.ProcessOf(rank);
      member.cores = places_.CoresOf(rank);
      member.block = reach->block();
      member.header = reinterpret_cast<exec::BlockHeader*>(member.block);
      member.layout = layout_.channel;
      member.reach = reach.get();
      member.device = peers_[rank].device;
      members_.push_back(member);
      reaches_.push_back(std::move(reach));
    }
    return survey_.Prepare(blocks_[0].network, block_->header(),
                           [this](int rank) { return reaches_[static_cast<size_t>(rank)]; });
  }

  Status MakeDevice() {
    device_options_.device = options_.identity.device;
    device_options_.rank = options_.identity.rank;
    device_options_.ranks = options_.identity.ranks;
    device_options_.lanes = settings_.lanes;
    device_options_.most_blocks = std::max(1u, settings_.most_blocks);
    device_options_.scratch_bytes = settings_.scratch_bytes;
    device_options_.spares_blocks = options_.spares_blocks;
    device_options_.mixes_graphs = options_.mixes_graphs;
    device_options_.areas = settings_.gpu_channels;
    device_options_.spans_machines = spans_machines_;
    device_options_.notice_seconds = settings_.notice_seconds;
    device_options_.map_bytes = settings_.map_bytes;
    device_options_.grow_bytes = settings_.grow_bytes;
    device_options_.grown_scratch_bytes = settings_.grown_scratch_bytes;
    AXCCL_ASSIGN_OR_RETURN(device_, platform().Create(device_options_));
    DeviceSetup setup(exchange_, block_.get(), &reaches_);
    return device_->Share(&setup, members_);
  }

  Status TestCalls() {
    bool all = settings_.allow_calls != 0;
    for (size_t rank = 0; rank < ranks() && all; ++rank)
      all = reaches_[rank]->TryCalls(blocks_[rank].probe, members_[rank].header->probe);
    const Reachable mine{static_cast<uint8_t>(all)};
    std::vector<Reachable> reachable(ranks());
    AXCCL_RETURN_IF_ERROR(exchange_->AllGather(&mine, sizeof(mine), reachable.data()));
    for (const Reachable& r : reachable) all &= r.all != 0;
    for (const auto& reach : reaches_) reach->SetCalls(all);
    return Status();
  }

  // From now on, plans are chosen by these figures.
  Status LearnNetwork() {
    AXCCL_ASSIGN_OR_RETURN(NetworkSurvey::News news,
                           survey_.Measure(platform().HostDevice(options_.identity.device.ordinal)->queue(),
                                           {options_.deadline, options_.abort}));
    if (news.to_measure != 0) {
      std::vector<NetworkSurvey::News> all(ranks());
      AXCCL_RETURN_IF_ERROR(exchange_->AllGather(&news, sizeof(news), all.data()));
      news = all[0];
    }
    cost::SetNetwork(news.figures, &settings_.machine);
    settings_.network = news.source;
    block_->Keep(survey_.TakeMemory());
    return MakeChooser();
  }

  // UCX connects two processes at their first message, and does not survive a network that breaks meanwhile (1.13.1
  // aborts the process). So connect now, not when ranks report their failures, unless there are too many ranks, or it
  // takes too long. So do processes that watch each other.
  void MeetOtherMachines() const {
    const auto limit = std::chrono::steady_clock::now() + kMeeting;
    for (size_t rank = 0; rank < ranks(); ++rank) {
      if (places_.IsFirstOfProcess(rank)) remote::Lines::Made()->AwaitLifelines(peers_[rank].address.process_id, limit);
    }
    if (options_.identity.ranks - local_.count > kMostToMeet) return;
    for (size_t rank = self(); rank < ranks(); ++rank) reaches_[rank]->BeginFlush();
    for (size_t rank = self(); rank < ranks(); ++rank) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now());
      if (left.count() <= 0 || (options_.abort != nullptr && *options_.abort)) return;
      reaches_[rank]->AwaitFlush(left);
    }
  }

  Result<std::shared_ptr<Communicator>> Finish() {
    if (spans_machines_) MeetOtherMachines();
    Identity identity = options_.identity;
    identity.hash = peers_[0].hash;
    const int crowding = topo::Crowding(ProcessorsOnMachineOf(self()), static_cast<size_t>(local_.self));
    auto comm = std::make_shared<Communicator>(identity, settings_, std::move(chooser_), std::move(block_), members_,
                                               reaches_, std::move(device_), crowding);
    if (options_.timeout_seconds) comm->SetTimeout(*options_.timeout_seconds);
    comm->Correspond(places_.FarOnes(peers_[0].hash));
    if (comm->device().traits().needs_watch) AXCCL_RETURN_IF_ERROR(Watch(comm.get()));
    AXCCL_INFO(kInit,
               "comm %s %016llx rank %zu nranks %zu %s %d: init complete, %d processes, ranks to a processor: %d, link "
               "to rank %zu %s",
               options_.identity.name.c_str(), static_cast<unsigned long long>(identity.hash), self(), ranks(),
               platform().log_name(), options_.identity.device.ordinal, CountLocalProcesses(*comm), crowding,
               (self() + 1) % ranks(), LinkName(*comm, static_cast<int>((self() + 1) % ranks())));
    if (spans_machines_) {
      const cost::Network network = cost::NetworkOf(settings_.machine);
      AXCCL_INFO(
          kInit,
          "comm %s %016llx rank %zu: plans are chosen for messages of %.6g us, %.6g us of each end, %.6g MB/s: %s",
          options_.identity.name.c_str(), static_cast<unsigned long long>(identity.hash), self(),
          1e6 * network.signal_seconds, 1e6 * network.message_seconds, 1e-6 * network.link_bytes_per_second,
          TextOf(settings_.network));
    }
    return comm;
  }

 public:
  // Sends the error to the others, and releases what they may already use. Does not throw. If memory runs out, the
  // block stays for as long as the process lives, because peers may still write to it.
  void GiveUp(const Status& status) {
    SendFailure(exchange_, status);
    survey_.GiveUp();
    if (announced_ && block_ == nullptr) return;  // a communicator owned it, and has released it
    const Status gone = CatchAll("giving memory back", [&] { return LetGo(), Status(); });
    if (gone.ok()) return;
    AXCCL_WARN("%s", gone.message().data());
    if (announced_) (void)block_.release();
  }

 private:
  void LetGo() {
    std::vector<Holder> holders(ranks());
    if (block_ != nullptr) block_->Keep(survey_.TakeMemory());
    if (device_ != nullptr) {
      device_->Disconnect();
      if (device_->traits().outlives_rank) block_->Keep(std::shared_ptr<void>(std::move(device_)));
    }
    // Others may have got further, and wait for this rank. If its process ends now, they notice that.
    if (block_ != nullptr) PartFromPeers(block_->header(), reaches_, std::chrono::milliseconds(0));
    for (const exec::Member& member : members_) {
      if (member.rank != options_.identity.rank && !exec::IsMirror(member))
        layout_.ReleasedBy(member.block, options_.identity.rank)->store(1, std::memory_order_release);
    }
    LetGoUnseen();
    if (!announced_) return;
    FindHolders(&holders);
    Block::Release(std::move(block_), std::move(holders));
  }

  // For blocks of this process to which this rank will not attach any more. Other processes wait until this one ends.
  void LetGoUnseen() {
    if (!located_ || own_ == nullptr) return;
    for (size_t rank = members_.size(); rank < ranks(); ++rank) {
      if (rank == self() || peers_[rank].address.process_id != peers_[self()].address.process_id) continue;
      const Result<std::byte*> block = own_->At(blocks_[rank].offset, layout_.bytes);
      if (block.ok()) layout_.ReleasedBy(block.value(), options_.identity.rank)->store(1, std::memory_order_release);
    }
  }

  // The ranks that may know the address of the block, and attach to it after this rank has failed.
  void FindHolders(std::vector<Holder>* holders) {
    for (size_t rank = 0; rank < ranks(); ++rank) {
      if (rank == self()) continue;
      if (!places_.IsRemote(rank)) (*holders)[rank].pid = peers_[rank].address.pid;
      if (rank < reaches_.size()) (*holders)[rank].reach = std::move(reaches_[rank]);
    }
  }

  Exchange* const exchange_;
  const SetupOptions& options_;
  NetworkSurvey survey_{options_.identity.rank};
  std::vector<BlockAddress> blocks_;
  std::vector<Introduction> peers_;
  LocalRanks local_;
  int node_ = topo::kNowhere;  // of the rank's memory
  Settings settings_;
  std::unique_ptr<tune::Chooser> chooser_;
  exec::BlockLayout layout_;
  std::unique_ptr<Block> block_;
  std::vector<exec::Member> members_;
  std::vector<std::shared_ptr<transport::Reach>> reaches_;
  std::shared_ptr<transport::Reach> own_;
  bool spans_machines_ = false;
  Places places_;
  std::vector<std::byte> networks_;  // the WireNetwork of each, without the data if no rank has any
  size_t network_bytes_ = 0;         // of one
  bool over_ucx_ = false;            // what this process prefers
  exec::RankOptions device_options_;
  std::unique_ptr<exec::RankDevice> device_;
  bool announced_ = false;  // other ranks may know this rank's block
  bool located_ = false;    // this rank knows the others' blocks
};

}  // namespace

Result<std::shared_ptr<Communicator>> Setup(Exchange* exchange, const SetupOptions& options) {
  std::optional<Builder> builder;
  auto comm = CatchAll("making a communicator", [&] { return builder.emplace(exchange, options).Run(); });
  if (comm.ok()) return comm;
  if (builder.has_value()) {
    builder->GiveUp(comm.status());
  } else {
    SendFailure(exchange, comm.status());
  }
  return comm;
}

}  // namespace axccl::comm
