#include "tests/kernels/cuda/world.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "src/algo/algo.h"
#include "src/exec/cuda/packing.h"
#include "src/exec/cuda/program.h"
#include "src/exec/cuda/small.h"
#include "src/verify/verify.h"
#include "tests/harness/fibers/team.h"

namespace axccl::kernels::cuda {
namespace {

constexpr uint32_t kEndpoints = 72;
constexpr uint64_t kScratchBytes = 24 << 10, kGrownBytes = 40 << 10;
constexpr uint32_t kGrownMap = 2;
constexpr uint64_t kViewBytes = 8 * sizeof(ViewPlace);

template <class T>
T Must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "%s\n", std::string(result.status().message()).c_str());
  std::abort();
}

std::shared_ptr<const exec::Program> ProgramOf(const plan::Contract& contract, std::string_view algorithm, int lanes,
                                               int rank, const algo::Chunking& chunks = {.slices = 0}) {
  using Key = std::tuple<plan::Kind, int, int, std::string, int, int, bool, algo::ChunkOrder>;
  static std::map<Key, std::shared_ptr<const plan::Plan>> plans;
  static std::map<std::pair<const plan::Plan*, int>, std::shared_ptr<const exec::Program>> programs;
  auto& plan = plans[Key{contract.kind, contract.ranks, contract.root, std::string(algorithm), lanes, chunks.slices,
                         chunks.produced, chunks.order}];
  if (plan == nullptr) {
    plan = Must(verify::MakePlan(Must(chunks.slices != 0 ? algo::GenerateChunked(contract, algorithm, chunks)
                                                         : algo::Generate(contract, algorithm, lanes))));
  }
  auto& program = programs[{plan.get(), rank}];
  if (program == nullptr) program = Must(exec::Program::Make(plan, rank));
  return program;
}

// Prepares calls like exec::Channel, with tiles of the test's choice.
exec::Prepared Prepare(const CallSpec& call, std::shared_ptr<const exec::Program> program,
                       uint64_t scratch_bytes = kScratchBytes) {
  const plan::Schedule& schedule = program->plan->schedule;
  const uint64_t element = ElementSize(call.type);
  exec::Prepared prepared;
  plan::Partition& cut = prepared.partition;
  cut.count = call.count;
  cut.granule = static_cast<uint32_t>(64 / element);
  cut.lanes = schedule.lanes;
  cut.parts = schedule.parts;
  if (schedule.slots != 0) {
    const uint64_t room = scratch_bytes / (uint64_t{schedule.slots} * plan::kRotation * schedule.lanes) / 64 * 64;
    uint64_t tile = room / (cut.granule * element) * cut.granule * schedule.parts;
    if (call.tile != 0) tile = std::min(tile, RoundUp(call.tile, cut.granule));
    cut.tile = tile >= plan::LaneSpan(cut, cut.lanes - 1).count ? 0 : tile;
    prepared.slot_bytes = std::max<uint64_t>(RoundUp(plan::SlotElements(cut) * element, 64), 64);
    prepared.sets.bytes = prepared.slot_bytes * schedule.slots * schedule.lanes;
    prepared.sets.count = std::max<uint64_t>(scratch_bytes / plan::kRotation / prepared.sets.bytes, 1);
  }
  prepared.turns = plan::Turns(cut);
  prepared.whole = cut.tile == 0 && cut.lanes == 1 && cut.parts == 1;
  prepared.program = std::move(program);
  return prepared;
}

Packing PackingOf(const CallSpec& call, const exec::Prepared& prepared) {
  exec::Protocols allowed;
  if (call.packs) allowed.ll = exec::Protocols::kAllKinds;
  if (call.rows) allowed.ll128 = exec::Protocols::kAllKinds;
  const uint64_t bytes = call.views.empty() ? call.count * ElementSize(call.type) : 0;
  const auto ranks = static_cast<uint32_t>(prepared.program->plan->schedule.contract.ranks);
  return exec::ChoosePacking(prepared, bytes, call.kind, ranks, exec::CudaPacking(*prepared.program).packing(),
                             allowed);
}

}  // namespace

// Stores a small integer as an element.
void StoreValue(DataType type, int64_t value, uint8_t* to) {
  if (type == DataType::kFloat64) {
    const auto number = static_cast<double>(value);
    std::memcpy(to, &number, 8);
  } else if (type == DataType::kFloat32 || type == DataType::kBfloat16) {
    const auto number = static_cast<float>(value);
    const size_t bytes = ElementSize(type);
    std::memcpy(to, reinterpret_cast<const uint8_t*>(&number) + 4 - bytes, bytes);
  } else {
    std::memcpy(to, &value, ElementSize(type));
  }
}

namespace {

uint32_t SignatureOf(const CallSpec& call, const plan::Plan& plan) {
  const uint64_t words = uint64_t(call.kind) | uint64_t(call.type) << 8 | uint64_t(call.combine) << 16 |
                         uint64_t(call.scaling) << 24 | uint64_t(call.root) << 32;
  return static_cast<uint32_t>(harness::Scramble(words, call.count, plan.hash.low));
}

}  // namespace

std::string CallSpec::Text() const {
  char text[320];
  std::snprintf(
      text, sizeof(text),
      "%s by %.*s, %d lanes, root %d, count %llu, tile %llu, %s %s, scaling %d, in place %x, packs %d%d, %zu views, "
      "else by %.*s, %d lanes, unmapped %x, or grown by %.*s, %d lanes, cramped %x, %d slices%s, order %d",
      plan::KindName(kind), static_cast<int>(algorithm.size()), algorithm.data(), lanes, root,
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(tile), DataTypeName(type),
      CombineName(combine), static_cast<int>(scaling), in_place, packs, rows, views.size(),
      static_cast<int>(staged.size()), staged.data(), staged_lanes, unmapped, static_cast<int>(grown.size()),
      grown.data(), grown_lanes, cramped, chunks.slices, chunks.produced ? " produced" : "",
      static_cast<int>(chunks.order));
  return text;
}

World::World(int ranks, int lanes, uint64_t seed) : ranks_(ranks), lanes_(lanes), seed_(seed), random_(seed) {
  parts_.resize(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) MakeDevice(rank);
  for (int rank = 0; rank < ranks; ++rank) FillChannel(rank);
}

void World::MakeDevice(int rank) {
  auto device = std::make_unique<Device>();
  const auto words = [](size_t bytes) { return bytes / 8 + 8; };
  device->lines.resize(words(static_cast<size_t>(lanes_) * kEndpoints * kRotation * sizeof(Line)));
  const size_t worded = WordedEndpoints(static_cast<uint32_t>(ranks_)), rowed = NumRowed();
  device->packed.resize(words(worded * kRotation * kPackedSlotBytes));
  device->rows.resize(words(rowed * kRotation * kRowedSlotBytes + kRowBytes));
  device->announcements.resize(words(2 * sizeof(Announcement) + 2 * kViewBytes));
  device->scratch.resize(words(kScratchBytes), 0xcccccccccccccccc);
  device->grown.resize(words(kGrownBytes), 0xcccccccccccccccc);
  device->bound.resize(words(kScratchBytes), 0xcccccccccccccccc);
  // A member exports its whole address space, shifted, and its grown scratch.
  const uint64_t grown = RoundUp(reinterpret_cast<uint64_t>(device->grown.data()), 64);
  device->maps = {0, static_cast<uint64_t>(rank + 1) << 20, grown};
  const size_t bindings = Channel::MembersAt() + sizeof(Member) * static_cast<size_t>(ranks_);
  device->channel_memory.resize(words(bindings + sizeof(Binding) * static_cast<size_t>(ranks_)));
  device->channel = new (device->channel_memory.data()) Channel;
  device->channel->bindings_at = static_cast<uint32_t>(bindings);
  devices_.push_back(std::move(device));
}

void World::FillChannel(int rank) {
  const auto on_line = [](std::vector<uint64_t>& memory) {
    return reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  };
  const auto on_row = [](std::vector<uint64_t>& memory) {
    return reinterpret_cast<uint8_t*>(RoundUp(reinterpret_cast<uintptr_t>(memory.data()), kRowBytes));
  };
  Device& device = *devices_[static_cast<size_t>(rank)];
  const plan::Contract contract{plan::Kind::kBarrier, ranks_, 0};
  auto& barrier = barrier_[rank];
  barrier = Must(exec::MakeCudaProgram(*ProgramOf(contract, "oneshot", 1, rank)));
  Channel& channel = *device.channel;
  channel.control = &device.control;
  channel.wait = &device.wait;
  channel.barrier = reinterpret_cast<const Program*>(barrier.data());
  channel.half_bytes = kScratchBytes / kRotation;
  channel.grown_half_bytes = kGrownBytes / kRotation;
  channel.endpoints = kEndpoints;
  channel.lanes = static_cast<uint32_t>(lanes_);
  channel.size = static_cast<uint32_t>(ranks_);
  channel.self = static_cast<uint32_t>(rank);
  channel.view_bytes = kViewBytes;
  channel.multicast = {reinterpret_cast<uint8_t*>(fibers::kTeam), on_line(device.bound), kScratchBytes / kRotation};
  for (int peer = 0; peer < ranks_; ++peer) {
    Device& other = *devices_[static_cast<size_t>(peer)];
    channel.members()[peer] = {on_line(other.lines),
                               on_line(other.packed),
                               on_row(other.rows),
                               on_line(other.announcements),
                               {on_line(other.scratch), on_line(other.scratch)},
                               other.maps.data()};
    channel.bindings()[peer] = Binding{};
  }
}

void World::StartAt(uint64_t turn) {
  for (auto& device : devices_) device->channel->state.turn = turn;
  if (turn >> 32 == 0) return;
  for (int rank = 0; rank < ranks_; ++rank) {
    uint8_t* const rows = devices_[static_cast<size_t>(rank)]->channel->members()[rank].rows;
    for (uint64_t i = 0; i < NumRowed() * kRotation; ++i) {
      const uint64_t endpoint = i / kRotation, copy = i % kRotation;
      uint8_t* const slot = rows + (endpoint * kRotation + (turn + copy) % kRotation) * kRowedSlotBytes;
      const uint64_t flag = turn + copy + 1 - (uint64_t{1} << 32);
      for (uint32_t row = 0; row < StoredRows(kRowedBytes); ++row)
        std::memcpy(slot + row * kRowBytes + 16 * kRowPieces, &flag, sizeof(flag));
    }
  }
}

void World::HideMembers() {
  for (const auto& device : devices_) {
    device->meeting_memory.resize((sizeof(Meeting) + sizeof(Member) * static_cast<size_t>(ranks_)) / 8 + 8);
    const uintptr_t line = (reinterpret_cast<uintptr_t>(device->meeting_memory.data()) + 63) / 64 * 64;
    Channel& channel = *device->channel;
    channel.meeting = new (reinterpret_cast<void*>(line)) Meeting;
    channel.state.unmet = 1;
    for (int p = 0; p < ranks_; ++p) channel.meeting->members()[p] = std::exchange(channel.members()[p], Member());
  }
}

void World::Introduce(int rank) {
  Meeting* const meeting = devices_[static_cast<size_t>(rank)]->channel->meeting;
  __atomic_store_n(&meeting->met, 1, __ATOMIC_RELEASE);
}

// ---- calls ----

int64_t World::InputValue(const CallSpec& call, int rank, int block, uint64_t i) const {
  const uint64_t order = (uint64_t(rank) << 40) + (uint64_t(block) << 32) + i;
  const auto value = static_cast<int64_t>(harness::Scramble(seed_, call.count * 131 + uint64_t(call.kind), order) % 4);
  // Averages are whole numbers, and so is every rank's part of one; the sum fits into a byte.
  return call.scaling == Scaling::kAverage ? value % 2 * ranks_ : value;
}

int64_t World::WantedValue(const CallSpec& call, int rank, int block, uint64_t i) const {
  switch (call.kind) {
    case plan::Kind::kAllGather:
    case plan::Kind::kGather:
      return InputValue(call, block, 0, i);
    case plan::Kind::kBroadcast:
      return InputValue(call, call.root, 0, i);
    case plan::Kind::kScatter:
      return InputValue(call, call.root, rank, i);
    case plan::Kind::kAllToAll:
      return InputValue(call, block, rank, i);
    case plan::Kind::kSendRecv:
      return InputValue(call, 0, 0, i);
    default:
      break;
  }
  const int input_block = call.kind == plan::Kind::kReduceScatter ? rank : 0;
  int64_t result = 0;
  for (int r = 0; r < ranks_; ++r) {
    const int64_t value = InputValue(call, r, input_block, i) * (call.scaling == Scaling::kPreMultiply ? r + 1 : 1);
    if (r == 0) {
      result = value;
    } else if (call.combine == Combine::kSum) {
      result += value;
    } else {
      result = std::max(result, value);
    }
  }
  if (call.scale != 0) result = static_cast<int64_t>(static_cast<double>(result) * call.scale);
  return call.scaling == Scaling::kAverage ? result / ranks_ : result;
}

void World::MakeBuffers(Part* part) {
  const CallSpec& call = part->call;
  const plan::Contract contract{call.kind, ranks_, call.root};
  const size_t element = ElementSize(call.type), block = call.count * element;
  const int inputs = plan::InputBlocks(contract, part->rank), outputs = plan::OutputBlocks(contract, part->rank);
  const size_t in_bytes = block * static_cast<size_t>(inputs), out_bytes = block * static_cast<size_t>(outputs);
  const size_t shift[2] = {random_.Below(8) * element % 64, random_.Below(8) * element % 64};
  part->memory.resize((in_bytes + out_bytes) / 8 + 64, 0x5a5a5a5a5a5a5a5a);
  auto* const base = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(part->memory.data()) + 63) / 64 * 64);
  part->input = base + shift[0];
  part->output = base + RoundUp(in_bytes + shift[0], 64) + shift[1];
  int in_block, out_block;
  const bool in_place =
      (call.in_place >> part->rank & 1) != 0 && plan::InPlaceBlocks(contract, part->rank, &in_block, &out_block);
  if (in_place && inputs >= outputs) part->output = part->input + static_cast<size_t>(in_block) * block;
  if (in_place && inputs < outputs) {
    part->output = base + shift[0];
    part->input = part->output + static_cast<size_t>(out_block) * block;
  }
  part->wanted_input.resize(in_place ? 0 : in_bytes);
  part->wanted_output.resize(out_bytes);
  for (int b = 0; b < inputs; ++b) {
    for (uint64_t i = 0; i < call.count; ++i)
      StoreValue(call.type, InputValue(call, part->rank, b, i),
                 part->input + static_cast<size_t>(b) * block + i * element);
  }
  if (!in_place && in_bytes != 0) std::memcpy(part->wanted_input.data(), part->input, in_bytes);
  for (int b = 0; b < outputs; ++b) {
    for (uint64_t i = 0; i < call.count; ++i)
      StoreValue(call.type, WantedValue(call, part->rank, b, i),
                 part->wanted_output.data() + static_cast<size_t>(b) * block + i * element);
  }
}

void World::MakeTask(Part* part) {
  const CallSpec& call = part->call;
  const auto program =
      ProgramOf(plan::Contract{call.kind, ranks_, call.root}, call.algorithm, call.lanes, part->rank, call.chunks);
  const exec::Prepared prepared = Prepare(call, program);
  part->program = Must(exec::MakeCudaProgram(*program));
  Device& device = *devices_[static_cast<size_t>(part->rank)];
  Task& task = part->task;
  task.channel = device.channel;
  task.program = reinterpret_cast<const Program*>(part->program.data());
  task.input = part->input;
  task.output = part->output;
  // By address, or by an exported map.
  task.input_map = static_cast<uint32_t>(random_.Below(2));
  task.output_map = static_cast<uint32_t>(random_.Below(2));
  task.input_offset = reinterpret_cast<uint64_t>(part->input) - device.maps[task.input_map];
  task.output_offset = reinterpret_cast<uint64_t>(part->output) - device.maps[task.output_map];
  task.cut = exec::MakeCudaCut(prepared, PackingOf(call, prepared));
  StoreValue(call.type, part->rank + 1, reinterpret_cast<uint8_t*>(&task.scalar));
  if (random_.Below(2) == 0) task.scalar_pointer = &task.scalar;
  if (!call.staged.empty()) OfferStaged(part);
  if (call.chunks.slices != 0) MakeSliced(*program, part);
  task.call = uint64_t(call.kind);
  task.signature = SignatureOf(call, *program->plan);
  task.type = call.type;
  task.combine = call.combine;
  task.scaling = call.scaling;
  if (call.views.empty()) task.small = exec::LowerTask(exec::LowerProgram(*program), task);
}

void World::OfferStaged(Part* part) {
  const CallSpec& call = part->call;
  const plan::Contract contract{call.kind, ranks_, call.root};
  const auto program = ProgramOf(contract, call.staged, call.staged_lanes, part->rank);
  part->staged = Must(exec::MakeCudaProgram(*program));
  part->task.staged = reinterpret_cast<const Program*>(part->staged.data());
  const exec::Prepared prepared = Prepare(call, program);
  part->task.staged_cut = exec::MakeCudaCut(prepared, PackingOf(call, prepared));
  if (!call.grown.empty()) OfferGrown(part);
  if ((call.unmapped >> part->rank & 1) == 0) return;
  (random_.OneIn(2) ? part->task.input_map : part->task.output_map) = kUnmapped;
}

void World::OfferGrown(Part* part) {
  const CallSpec& call = part->call;
  const plan::Contract contract{call.kind, ranks_, call.root};
  const auto program = ProgramOf(contract, call.grown, call.grown_lanes, part->rank);
  part->grown = Must(exec::MakeCudaProgram(*program));
  part->task.grown = reinterpret_cast<const Program*>(part->grown.data());
  part->task.grown_cut = exec::MakeCudaCut(Prepare(call, program, kGrownBytes), Packing::kNone);
  if ((call.cramped >> part->rank & 1) == 0) part->task.scratch_map = kGrownMap;
}

void World::MakeSliced(const exec::Program& program, Part* part) {
  const CallSpec& call = part->call;
  const plan::Contract contract{call.kind, ranks_, call.root};
  const auto words = [&](int blocks) { return static_cast<size_t>(blocks * call.chunks.slices); };
  part->in.resize(words(plan::InputBlocks(contract, part->rank)));
  part->out.resize(words(plan::OutputBlocks(contract, part->rank)));
  part->seen.resize(part->in.size());
  part->came.resize(part->out.size());
  Sliced& sliced = part->sliced;
  const plan::Schedule& schedule = program.plan->schedule;
  sliced.slicing = {call.count, 1, 1, schedule.slices, schedule.parts};
  sliced.in = part->in.data();
  sliced.out = part->out.data();
  sliced.seen = part->seen.data();
  sliced.came = part->came.data();
  sliced.begun = part->begun;
  sliced.ended = part->ended;
  sliced.num_in = static_cast<uint32_t>(part->in.size());
  sliced.num_out = static_cast<uint32_t>(part->out.size());
  part->task.sliced = &sliced;
}

void World::DeclareOne() {
  std::vector<uint32_t*> left;
  for (const auto& parts : parts_) {
    for (const auto& part : parts) {
      for (uint32_t& word : part->in) {
        if (__atomic_load_n(&word, __ATOMIC_RELAXED) == Sliced::kNotYet) left.push_back(&word);
      }
    }
  }
  if (!left.empty()) __atomic_store_n(left[random_.Below(left.size())], uint32_t{Sliced::kThere}, __ATOMIC_RELEASE);
}

std::string World::Part::CheckChunk(size_t chunk, bool all) const {
  const bool there = __atomic_load_n(&out[chunk], __ATOMIC_ACQUIRE) == Sliced::kThere;
  const bool has_come = __atomic_load_n(&came[chunk], __ATOMIC_ACQUIRE) == stamp;
  if (all && !(there && has_come)) return "has not come";
  if (!there && !has_come) return "";
  const size_t block = call.count * ElementSize(call.type), slices = sliced.slicing.slices;
  const plan::Range range = plan::ResolveSlice(sliced.slicing, static_cast<uint32_t>(chunk % slices));
  const size_t at = chunk / slices * block + range.begin * ElementSize(call.type);
  const size_t bytes = range.count * ElementSize(call.type);
  return bytes != 0 && std::memcmp(output + at, wanted_output.data() + at, bytes) != 0 ? "came too early" : "";
}

// A start begins before it ends, and ends when all its chunks have come; what is seen to be ready is.
std::string World::Part::CheckStamps(bool all) const {
  const uint32_t in_graph = stamp >> 31;
  const bool has_ended = __atomic_load_n(ended + in_graph, __ATOMIC_ACQUIRE) == stamp;
  if (all && !has_ended) return "has no end";
  if (has_ended && __atomic_load_n(begun + in_graph, __ATOMIC_ACQUIRE) != stamp) return "ends before its beginning";
  for (size_t chunk = 0; chunk < in.size(); ++chunk) {
    const bool is_seen = __atomic_load_n(&seen[chunk], __ATOMIC_ACQUIRE) == stamp;
    const bool ready = __atomic_load_n(&in[chunk], __ATOMIC_ACQUIRE) == Sliced::kThere;
    if (is_seen && !ready) return "sees input chunk " + std::to_string(chunk) + " too early";
    if (has_ended && call.chunks.produced && !is_seen) return "does not see input chunk " + std::to_string(chunk);
  }
  for (size_t chunk = 0; chunk < out.size() && has_ended; ++chunk) {
    if (const std::string wrong = CheckChunk(chunk, true); !wrong.empty())
      return "has ended, but chunk " + std::to_string(chunk) + " " + wrong;
  }
  return "";
}

std::string World::CheckChunks(bool all) const {
  for (const auto& parts : parts_) {
    for (size_t op = 0; op < parts.size(); ++op) {
      const Part& part = *parts[op];
      const std::string name = "operation " + std::to_string(op) + " of rank " + std::to_string(part.rank);
      for (size_t chunk = 0; chunk < part.out.size(); ++chunk) {
        if (const std::string wrong = part.CheckChunk(chunk, all); !wrong.empty())
          return "chunk " + std::to_string(chunk) + " of " + name + " " + wrong;
      }
      if (const std::string wrong = part.CheckStamps(all); !wrong.empty()) return name + " " + wrong;
    }
  }
  return "";
}

bool World::WordsAreSet(int rank) const {
  for (const auto& part : parts_[static_cast<size_t>(rank)]) {
    for (const auto* words : {&part->in, &part->out}) {
      if (std::find(words->begin(), words->end(), uint32_t{Sliced::kNotYet}) != words->end()) return false;
    }
  }
  return true;
}

void World::AddFor(int rank, const CallSpec& call) {
  auto part = std::make_unique<Part>();
  part->call = call;
  part->rank = rank;
  if (call.views.empty()) MakeBuffers(part.get());
  MakeTask(part.get());
  if (!call.views.empty()) MakeViews(part.get());
  parts_[static_cast<size_t>(rank)].push_back(std::move(part));
}

void World::Add(const CallSpec& call, uint32_t without) {
  for (int rank = 0; rank < ranks_; ++rank) {
    if ((without >> rank & 1) == 0) AddFor(rank, call);
  }
}

bool World::Run(Kernel kernel, const Shape& shape, const fibers::Options& options) {
  fibers::Team().clear();
  for (const auto& device : devices_) fibers::Team().push_back(device->channel->multicast.own);
  std::deque<Launch> launches;
  std::deque<std::vector<Task>> tasks;
  std::vector<fibers::Stream> streams(shape.together ? 1 : static_cast<size_t>(ranks_));
  for (size_t s = 0; s < streams.size(); ++s) {
    for (size_t op = 0; op < parts_[s].size(); ++op) {
      Launch& launch = launches.emplace_back();
      launch.lanes = static_cast<uint32_t>(lanes_);
      std::vector<Task>& all = tasks.emplace_back();
      const size_t last = shape.together ? parts_.size() : s + 1;
      for (size_t rank = s; rank < last; ++rank) {
        if (op >= parts_[rank].size()) continue;
        all.push_back(parts_[rank][op]->task);
        parts_[rank][op]->stamp = static_cast<uint32_t>(op + 1) | (shape.in_graph ? Launch::kGraphStamp : 0);
      }
      launch.num_tasks = static_cast<uint32_t>(all.size());
      launch.stamp = shape.in_graph ? 0 : static_cast<uint32_t>(op + 1);
      launch.in_graph = shape.in_graph;
      if (shape.more != 0) {
        launch.more = all.data();
      } else {
        std::copy(all.begin(), all.end(), launch.tasks);
      }
      streams[s].push_back({shape.blocks, shape.threads, [kernel, &launch] { kernel(launch); }});
    }
  }
  return fibers::Run(streams, options);
}

std::string World::Check() const {
  for (const auto& parts : parts_) {
    for (const auto& part : parts) {
      if (std::equal(part->wanted_output.begin(), part->wanted_output.end(), part->output) &&
          std::equal(part->wanted_input.begin(), part->wanted_input.end(), part->input))
        continue;
      const auto wrong = std::mismatch(part->wanted_output.begin(), part->wanted_output.end(), part->output).first;
      return "rank " + std::to_string(part->rank) + ", " + part->call.Text() + ": output wrong from byte " +
             std::to_string(wrong - part->wanted_output.begin());
    }
  }
  return "";
}

}  // namespace axccl::kernels::cuda
