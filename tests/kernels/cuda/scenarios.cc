#include "tests/kernels/cuda/scenarios.h"

#include <algorithm>

#include "kernels/cuda/switch_fold.h"
#include "src/algo/algo.h"

#include "tests/kernels/cuda/random_calls.h"

namespace axccl::kernels::cuda {
namespace {

constexpr int kLanes = 2;
// Enough for every scenario of the correct interpreter; mutants hang.
constexpr uint64_t kMostSwitches = 3'000'000;

World::Shape RandomShape(int ranks, int lanes, bool together, harness::Random* random, bool rows = false) {
  World::Shape shape;
  shape.threads =
      rows ? 8 * (1 + static_cast<uint32_t>(random->Below(2))) : 1 + static_cast<uint32_t>(random->Below(6));
  shape.together = together;
  const auto strands = static_cast<uint64_t>(lanes * (together ? ranks : 1));
  shape.blocks = 1 + static_cast<uint32_t>(random->Below(strands + 1));
  shape.more = random->OneIn(4);
  return shape;
}

}  // namespace

std::string RunSequence(Kernel kernel, int ranks, int lanes, const std::vector<CallSpec>& calls, uint64_t seed,
                        uint64_t most_switches, uint64_t first_turn, uint64_t turns) {
  harness::Random random(seed);
  World world(ranks, lanes, seed);
  world.StartAt(first_turn);
  for (const CallSpec& call : calls) world.Add(call);
  fibers::Options options;
  options.seed = seed;
  options.most_switches = most_switches;
  const bool together = random.OneIn(3);
  const bool rows = std::any_of(calls.begin(), calls.end(), [](const CallSpec& call) { return call.rows; });
  const bool ended = world.Run(kernel, RandomShape(ranks, lanes, together, &random, rows), options);
  std::string wrong = ended ? world.Check() : "hangs";
  uint64_t mapped = 0, grown = 0, cramped = 0;
  for (const CallSpec& call : calls) {
    const uint32_t all = (1u << ranks) - 1;
    if (call.staged.empty()) continue;
    if ((call.unmapped & all) == 0) {
      ++mapped;
    } else if (!call.grown.empty()) {
      ++((call.cramped & all) == 0 ? grown : cramped);
    }
  }
  for (int rank = 0; rank < ranks && wrong.empty(); ++rank) {
    if (world.control(rank).report != 0) wrong = "rank " + std::to_string(rank) + " reports";
    if (world.state(rank).sequence != calls.size()) wrong = "counts operations wrongly";
    const uint64_t turn = world.state(rank).turn;
    if (turn != world.state(0).turn || (turns != 0 && turn != turns)) wrong = "counts turns wrongly";
    const Wait& counts = world.wait(rank);
    if (counts.mapped != mapped || counts.grown != grown || counts.cramped != cramped)
      wrong = "takes the wrong one of several programs";
  }
  if (wrong.empty()) return wrong;
  wrong += "; seed " + std::to_string(seed) + ", calls:\n";
  for (const CallSpec& call : calls) wrong += "  " + call.Text() + "\n";
  return wrong;
}

std::string RunAnyCalls(Kernel kernel, uint64_t seed) {
  harness::Random random(seed);
  const int ranks = 2 + static_cast<int>(random.Below(3));
  std::vector<CallSpec> calls;
  for (uint64_t n = 2 + random.Below(6); n != 0; --n) calls.push_back(RandomCall(ranks, kLanes, &random));
  return RunSequence(kernel, ranks, kLanes, calls, seed, kMostSwitches);
}

namespace {

// Runs two calls of at least `least` elements, in turns of about `tile`.
std::string RunInTurns(Kernel kernel, uint64_t seed, uint64_t least, uint64_t tile) {
  harness::Random random(seed);
  const int ranks = 2 + static_cast<int>(random.Below(3));
  std::vector<CallSpec> calls;
  for (int n = 0; n < 2; ++n) {
    CallSpec call = RandomCall(ranks, kLanes, &random);
    call.count = least + random.Below(800);
    call.tile = tile + (tile > 1 ? random.Below(tile) : 0);
    call.views.clear();
    call.scale = 0;
    Legalize(&call);
    if (call.staged.empty() && random.OneIn(2)) PutOnViews(&call, &random);
    calls.push_back(call);
  }
  return RunSequence(kernel, ranks, kLanes, calls, seed, kMostSwitches);
}

}  // namespace

std::string RunLongCalls(Kernel kernel, uint64_t seed) { return RunInTurns(kernel, seed, 400, 1); }
std::string RunLargeCalls(Kernel kernel, uint64_t seed) { return RunInTurns(kernel, seed, 1000, 100); }

namespace {

CallSpec RandomSmallCall(int ranks, harness::Random* random) {
  CallSpec call = RandomCall(ranks, kLanes, random);
  call.algorithm = "oneshot";
  call.lanes = 1;
  call.tile = 0;
  call.views.clear();
  call.scale = 0;
  call.packs = !random->OneIn(8);
  const uint64_t most = kPackedBytes / ElementSize(call.type);
  call.count = random->OneIn(3) ? most - 2 + random->Below(5) : random->Below(random->OneIn(2) ? 8 : most);
  Legalize(&call);
  return call;
}

}  // namespace

std::string RunSmallCalls(Kernel kernel, uint64_t seed) {
  harness::Random random(seed);
  const int ranks = 2 + static_cast<int>(random.Below(3));
  std::vector<CallSpec> calls;
  for (uint64_t n = 3 + random.Below(6); n != 0; --n) calls.push_back(RandomSmallCall(ranks, &random));
  // In most cases where flags begin again, often with the first call.
  const uint64_t before = random.OneIn(3) ? random.Below(4) : 0;
  const uint64_t first_turn = random.OneIn(4) ? 0 : (uint64_t{1} << 32) - 1 - before;
  return RunSequence(kernel, ranks, kLanes, calls, seed, kMostSwitches, first_turn);
}

std::string RunSmallCallsAmongOthers(Kernel kernel, uint64_t seed) {
  harness::Random random(seed);
  const int ranks = 2 + static_cast<int>(random.Below(3));
  std::vector<CallSpec> calls;
  for (int n = 0; n < 4; ++n) {
    calls.push_back(RandomSmallCall(ranks, &random));
    calls.push_back(RandomCall(ranks, kLanes, &random));
    calls.back().count %= 50;
    Legalize(&calls.back());
    if (!calls.back().views.empty()) calls.pop_back();
  }
  return RunSequence(kernel, ranks, kLanes, calls, seed, kMostSwitches);
}

std::string RunRowedCalls(Kernel kernel, uint64_t seed) {
  harness::Random random(seed);
  const int ranks = 2 + static_cast<int>(random.Below(3));
  std::vector<CallSpec> calls;
  for (uint64_t n = 2 + random.Below(5); n != 0; --n) {
    CallSpec call = RandomCall(ranks, kLanes, &random);
    call.algorithm = "oneshot";
    call.lanes = 1;
    call.tile = 0;
    call.views.clear();
    call.scale = 0;
    call.packs = random.OneIn(2);
    call.rows = !random.OneIn(8);
    // From nothing to more than a slot's capacity, in most cases a few rows, and often exactly full rows.
    constexpr uint64_t kRowData = 16 * kRowPieces;
    const uint64_t element = ElementSize(call.type),
                   rows = random.OneIn(16) ? PackedRows(kRowedBytes) : random.Below(7);
    const uint64_t end = rows == PackedRows(kRowedBytes) ? kRowedBytes : rows * kRowData;
    call.count =
        random.OneIn(2) ? std::max<uint64_t>(end / element + random.Below(5), 2) - 2 : random.Below(end + 1) / element;
    Legalize(&call);
    calls.push_back(call);
  }
  // In most cases where flags of 32 bits would repeat.
  const uint64_t first_turn = random.OneIn(3) ? random.Below(2) : (uint64_t{1} << 32) + random.Below(4);
  return RunSequence(kernel, ranks, kLanes, calls, seed, kMostSwitches, first_turn);
}

namespace {

// Returns false unless there is such a plan for the call, and the switch folds as it does.
bool PutOnMulticast(CallSpec* call, harness::Random* random) {
  const auto& algorithms = algo::MulticastAlgorithms(call->kind);
  if (algorithms.empty()) return false;
  call->algorithm = algorithms[random->Below(algorithms.size())];
  call->views.clear();
  call->scale = 0;
  call->packs = false;
  Legalize(call);
  const bool divides = call->scaling == Scaling::kAverage && !IsFloat(call->type);
  const bool folds = !divides && SwitchFoldOf(call->type, call->combine) != SwitchFold::kNone;
  return folds || !algo::FoldsByMulticast(call->kind, call->algorithm);
}

}  // namespace

std::string RunMulticastCalls(Kernel kernel, uint64_t seed) {
  harness::Random random(seed);
  const int ranks = 2 + static_cast<int>(random.Below(3));
  std::vector<CallSpec> calls;
  while (calls.size() < 4) {
    const CallSpec other = RandomCall(ranks, kLanes, &random);
    CallSpec call = other;
    if (PutOnMulticast(&call, &random)) {
      calls.push_back(call);
    } else if (random.OneIn(8)) {
      calls.push_back(other);
    }
    if (calls.size() == 3) calls.push_back(calls.back());
  }
  return RunSequence(kernel, ranks, kLanes, calls, seed, kMostSwitches);
}

namespace {

// A root that waits for almost no rank gets two calls ahead, where its next announcement replaces its first. So a
// barrier precedes the second (the turns show it), although its plan has just run. Schedules that starve a rank for so
// long are rare.
std::string RunOffersOfRoot(Kernel kernel, uint64_t seed) {
  CallSpec out_of_reach;
  out_of_reach.kind = plan::Kind::kBroadcast;
  out_of_reach.algorithm = "direct";
  out_of_reach.staged = "ring";
  out_of_reach.count = 1;
  out_of_reach.unmapped = 1;
  CallSpec in_reach = out_of_reach, staged = out_of_reach;
  in_reach.unmapped = 0;
  staged.algorithm = out_of_reach.staged;
  staged.staged = {};
  std::vector<CallSpec> calls;
  constexpr uint64_t kRepeats = 3;
  for (uint64_t i = 0; i < kRepeats; ++i) calls.insert(calls.end(), {out_of_reach, staged, in_reach});
  return RunSequence(kernel, 3 + static_cast<int>(seed % 2), 1, calls, seed, kMostSwitches, 0, kRepeats * 6);
}

}  // namespace

std::string RunOffers(Kernel kernel, uint64_t seed) {
  if (std::string wrong = RunOffersOfRoot(kernel, seed); !wrong.empty()) return wrong;
  harness::Random random(seed);
  const int ranks = 2 + static_cast<int>(random.Below(3));
  CallSpec offer;
  do {
    offer = RandomCall(ranks, kLanes, &random);
  } while (offer.staged.empty());
  if (random.OneIn(8)) {  // several turns that fill the scratch, grown or not
    offer.count = ((20 << 10) + random.Below(20 << 10)) / ElementSize(offer.type);
    offer.tile = 0;
    Legalize(&offer);
  }
  CallSpec staged = offer;
  staged.algorithm = offer.staged;
  staged.lanes = offer.staged_lanes;
  staged.staged = staged.grown = {};
  std::vector<CallSpec> calls;
  for (uint64_t n = 3 + random.Below(6); n != 0; --n) {
    if (random.OneIn(2)) OfferStaged(ranks, kLanes, &offer, &random);
    offer.staged = staged.algorithm;
    offer.staged_lanes = staged.lanes;
    calls.push_back(random.OneIn(2) ? staged : offer);
  }
  return RunSequence(kernel, ranks, kLanes, calls, seed, kMostSwitches);
}

std::string RunBeforeMeeting(Kernel kernel, uint64_t seed) {
  harness::Random random(seed);
  const int ranks = 2 + static_cast<int>(random.Below(3));
  World world(ranks, kLanes, seed);
  std::string text;
  for (uint64_t n = 1 + random.Below(3); n != 0; --n) {
    const CallSpec call = random.OneIn(3) ? RandomSmallCall(ranks, &random) : RandomCall(ranks, kLanes, &random);
    world.Add(call);
    text += "  " + call.Text() + "\n";
  }
  world.HideMembers();
  fibers::Options options;
  options.seed = seed;
  options.most_switches = kMostSwitches;
  options.host_interval = 50;
  int known = 0;
  options.host = [&] {
    if (known < ranks && random.OneIn(3)) world.Introduce(known++);
  };
  const bool ended = world.Run(kernel, RandomShape(ranks, kLanes, random.OneIn(3), &random), options);
  const std::string wrong = ended ? world.Check() : "hangs";
  return wrong.empty() ? wrong : wrong + "; seed " + std::to_string(seed) + ", calls:\n" + text;
}

namespace {

CallSpec RandomPipeline(int ranks, harness::Random* random) {
  constexpr plan::Kind kKinds[] = {plan::Kind::kAllGather, plan::Kind::kReduceScatter, plan::Kind::kAllReduce,
                                   plan::Kind::kAllToAll,  plan::Kind::kBroadcast,     plan::Kind::kSendRecv};
  CallSpec call = RandomCall(ranks, kLanes, random);
  do {
    call.kind = kKinds[random->Below(std::size(kKinds))];
  } while (call.kind == plan::Kind::kSendRecv && ranks != 2);
  call.algorithm = algo::kChunkedDirect;
  call.root = static_cast<int>(random->Below(static_cast<uint64_t>(ranks)));
  call.views.clear();
  call.scale = 0;
  call.staged = {};
  call.packs = false;
  call.in_place = 0;
  call.count = random->Below(random->OneIn(2) ? 20 : 300);
  Legalize(&call);
  call.chunks.slices = 1 + static_cast<int>(random->Below(4));
  call.chunks.produced = random->OneIn(2);
  const auto orders = algo::ChunkOrders(call.kind, algo::kChunkedDirect);
  if (!orders.empty() && random->OneIn(2)) call.chunks.order = orders[random->Below(orders.size())];
  return call;
}

}  // namespace

std::string RunPipelines(Kernel kernel, uint64_t seed) {
  harness::Random random(seed);
  const int ranks = 2 + static_cast<int>(random.Below(3)), lanes = ranks + 1;
  World world(ranks, lanes, seed);
  const CallSpec call = RandomPipeline(ranks, &random);
  const uint64_t starts = 1 + random.Below(3);
  for (uint64_t n = starts; n != 0; --n) world.Add(call);
  fibers::Options options;
  options.seed = seed;
  options.most_switches = kMostSwitches;
  options.host_interval = 50;
  std::string wrong;
  options.host = [&] {
    if (wrong.empty()) wrong = world.CheckChunks(false);
    if (random.OneIn(3)) world.DeclareOne();
  };
  World::Shape shape = RandomShape(ranks, lanes, random.OneIn(3), &random);
  shape.in_graph = random.OneIn(3);
  const bool ended = world.Run(kernel, shape, options);
  if (wrong.empty()) wrong = ended ? world.Check() : "hangs";
  if (wrong.empty()) wrong = world.CheckChunks(true);
  for (int rank = 0; rank < ranks && wrong.empty(); ++rank) {
    if (world.state(rank).sequence != starts || world.state(rank).turn != starts) wrong = "counts wrongly";
  }
  return wrong.empty() ? wrong : wrong + "; seed " + std::to_string(seed) + ", " + call.Text();
}

std::string RunAbortedPipelines(Kernel kernel, uint64_t seed) {
  harness::Random random(seed);
  const int ranks = 2 + static_cast<int>(random.Below(3)), lanes = ranks + 1;
  World world(ranks, lanes, seed);
  CallSpec call = RandomPipeline(ranks, &random);
  call.chunks.produced = true;
  world.Add(call);
  fibers::Options options;
  options.seed = seed;
  options.most_switches = kMostSwitches;
  // No chunk is declared ready, or only some.
  uint64_t looks = 0, declared = 0;
  options.host = [&] {
    if (random.OneIn(10) && declared < 1) world.DeclareOne(), ++declared;
    if (++looks < 50) return;
    for (int rank = 0; rank < ranks; ++rank) __atomic_store_n(&world.control(rank).abort, 1, __ATOMIC_RELAXED);
  };
  std::string wrong;
  if (!world.Run(kernel, RandomShape(ranks, lanes, false, &random), options)) wrong = "hangs after an abort";
  // A rank without a part in the end may be done.
  for (int rank = 0; rank < ranks && wrong.empty(); ++rank) {
    if (!world.WordsAreSet(rank) && world.state(rank).broken != 0)
      wrong = "leaves words of rank " + std::to_string(rank);
  }
  const bool some_broken = wrong.empty() && [&] {
    for (int rank = 0; rank < ranks; ++rank) {
      if (world.state(rank).broken != 0) return true;
    }
    return false;
  }();
  if (wrong.empty() && !some_broken && call.chunks.slices > 1) wrong = "does not wait";
  return wrong.empty() ? wrong : wrong + "; seed " + std::to_string(seed) + ", " + call.Text();
}

std::string RunAborted(Kernel kernel, uint64_t seed) {
  harness::Random random(seed);
  const int ranks = 2 + static_cast<int>(random.Below(3));
  World world(ranks, kLanes, seed);
  // A barrier waits for all ranks, whatever else is called.
  const uint64_t before = random.Below(3);
  for (uint64_t n = before; n != 0; --n) world.Add(RandomCall(ranks, kLanes, &random));
  CallSpec barrier;
  barrier.kind = plan::Kind::kBarrier;
  barrier.algorithm = "oneshot";
  const auto absent = static_cast<int>(random.Below(static_cast<uint64_t>(ranks)));
  world.Add(barrier, 1u << absent);
  fibers::Options options;
  options.seed = seed;
  options.most_switches = kMostSwitches;
  uint64_t looks = 0;
  options.host = [&] {
    if (++looks < 100) return;
    for (int rank = 0; rank < ranks; ++rank) __atomic_store_n(&world.control(rank).abort, 1, __ATOMIC_RELAXED);
  };
  if (!world.Run(kernel, RandomShape(ranks, kLanes, false, &random), options))
    return "hangs after an abort; seed " + std::to_string(seed);
  for (int rank = 0; rank < ranks; ++rank) {
    const uint32_t report = world.control(rank).report;
    const bool aborted = report == static_cast<uint32_t>(Report::kAborted);
    // A rank that takes no part in the barrier may still run an earlier call.
    const bool unhurt = report == static_cast<uint32_t>(Report::kNone);
    if (rank == absent ? !unhurt && !(aborted && before > 0) : !aborted)
      return "rank " + std::to_string(rank) + " reports " + std::to_string(report) + " wrongly; seed " +
             std::to_string(seed);
  }
  return "";
}

std::string RunMismatched(Kernel kernel, uint64_t seed) {
  harness::Random random(seed);
  const int ranks = 2 + static_cast<int>(random.Below(3));
  World world(ranks, kLanes, seed);
  for (uint64_t n = random.Below(3); n != 0; --n) world.Add(RandomCall(ranks, kLanes, &random));
  // All ranks wait for each other, so the different call cannot pass unnoticed.
  CallSpec call = RandomCall(ranks, kLanes, &random);
  if (random.OneIn(2)) call = RandomSmallCall(ranks, &random);
  call.kind = plan::Kind::kAllReduce;
  call.algorithm = "oneshot";
  call.lanes = 1;
  Legalize(&call);
  CallSpec other = call;
  if (call.count != 0 && call.combine == Combine::kMax && random.OneIn(2)) {
    other.combine = Combine::kSum;
  } else {
    other.count += 1;
  }
  const auto odd = static_cast<int>(random.Below(static_cast<uint64_t>(ranks)));
  for (int rank = 0; rank < ranks; ++rank) world.AddFor(rank, rank == odd ? other : call);
  fibers::Options options;
  options.seed = seed;
  options.most_switches = kMostSwitches;
  bool found = false;
  options.host = [&] {
    for (int rank = 0; rank < ranks; ++rank) {
      const uint32_t report = __atomic_load_n(&world.control(rank).report, __ATOMIC_ACQUIRE);
      found |= report == static_cast<uint32_t>(Report::kMismatch);
    }
    for (int rank = 0; found && rank < ranks; ++rank) __atomic_store_n(&world.control(rank).abort, 1, __ATOMIC_RELAXED);
  };
  options.host_interval = 50;
  const bool ended = world.Run(kernel, RandomShape(ranks, kLanes, false, &random), options);
  options.host();
  if (!ended) return "hangs after a mismatch; seed " + std::to_string(seed);
  return found ? "" : "no rank reports a mismatch; seed " + std::to_string(seed);
}

}  // namespace axccl::kernels::cuda
