#include "src/comm/create.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "src/base/log.h"
#include "src/base/param.h"
#include "src/base/run_together.h"
#include "src/comm/child_setup.h"
#include "src/comm/setup.h"
#include "src/device/host/current.h"

namespace axccl::comm {
namespace {

struct SplitChoice {
  int32_t color;
  int32_t key;
};

// What an existing rank of a growing communicator contributes.
struct Offer {
  GrowId known;
  int32_t ranks;
  boot::UniqueId id;
};

using Made = Result<std::shared_ptr<Communicator>>;

// Runs the call. If it fails, the other ranks get the error at once, not when the last owner of the call drops it.
template <class Fn>
Made CarryOut(MakingCall* call, const Fn& fn) {
  Made made = CatchAll("making a communicator", fn);
  if (!made.ok()) call->Fail(made.status());
  return made;
}

}  // namespace

Result<const exec::Platform*> CurrentPlatform() {
  const std::string device = param::Get("AXCCL_DEVICE");
  const exec::Platform* const host = &exec::Platform::Host();
  const exec::Platform* const cuda = &exec::Platform::Cuda();
  if (device == "host") return host;
  // A driver does not appear or disappear while a process runs.
  static const auto* const gpus = [cuda] {
    auto* const found = new Result<int>(cuda->Count());
    if (const Status status = found->status(); !status.ok())
      AXCCL_INFO(kInit, "no GPUs: %.*s", static_cast<int>(status.message().size()), status.message().data());
    return found;
  }();
  if (device == "auto") return gpus->ok() && gpus->value() > 0 && !device::host::ChoseDevice() ? cuda : host;
  AXCCL_RETURN_IF_ERROR(gpus->status());
  if (gpus->value() == 0) return MakeStatus(Code::kInvalidUsage, "AXCCL_DEVICE=cuda: this process sees no GPU");
  return cuda;
}

Result<exec::DeviceId> CurrentDevice() {
  AXCCL_ASSIGN_OR_RETURN(const exec::Platform* const platform, CurrentPlatform());
  return platform->Current();
}

Result<std::shared_ptr<Communicator>> CreateFromId(std::span<const boot::UniqueId> ids, int rank, int ranks,
                                                   exec::DeviceId device, const Config& config,
                                                   const std::atomic<bool>* abort) {
  const SetupOptions options = MakeOptions(rank, ranks, device, config, abort);
  AXCCL_ASSIGN_OR_RETURN(auto session, boot::Session::Join(ids, rank, ranks, options.deadline, service::StopOn(abort)));
  const auto exchange = MakeBootExchange(std::move(session));
  return Setup(exchange.get(), options);
}

std::vector<Result<std::shared_ptr<Communicator>>> CreateAll(const std::vector<exec::DeviceId>& devices,
                                                             const Config& config, const std::atomic<bool>* abort) {
  const int ranks = static_cast<int>(devices.size());
  LocalMeeting meeting(ranks);
  std::vector<Result<std::shared_ptr<Communicator>>> results(
      devices.size(), Result<std::shared_ptr<Communicator>>(Status(Code::kInternalError, "not created")));
  // The others wait for a rank that is missing from the meeting, so all must have a seat before it begins.
  std::vector<std::unique_ptr<Exchange>> seats;
  std::vector<SetupOptions> options;
  for (int rank = 0; rank < ranks; ++rank) {
    seats.push_back(meeting.Join(rank));
    options.push_back(MakeOptions(rank, ranks, devices[static_cast<size_t>(rank)], config, abort));
  }
  const Status together = RunTogether("making communicators", devices.size(),
                                      [&](size_t rank) { results[rank] = Setup(seats[rank].get(), options[rank]); });
  if (!together.ok()) std::fill(results.begin(), results.end(), Result<std::shared_ptr<Communicator>>(together));
  return results;
}

Result<std::shared_ptr<MakingCall>> BeginWithAll(const std::shared_ptr<Communicator>& parent, Making what) {
  std::vector<int> everyone(static_cast<size_t>(parent->identity().ranks));
  std::iota(everyone.begin(), everyone.end(), 0);
  return BeginMaking(parent, what, std::move(everyone));
}

Result<std::shared_ptr<Communicator>> Split(MakingCall* call, int color, int key, const Config& config,
                                            const std::atomic<bool>* abort) {
  return CarryOut(call, [&]() -> Made {
    const Identity& identity = call->comm()->identity();
    SetupOptions options = MakeOptions(0, 0, identity.device, config, abort);
    call->SetLimits(options.deadline, abort);
    std::vector<SplitChoice> choices(call->group().size());
    const SplitChoice mine{color, key};
    AXCCL_RETURN_IF_ERROR(call->AllGather(&mine, sizeof(mine), choices.data()));
    // Each colour continues by itself from here; ranks without one are done.
    std::vector<int> ascending;
    for (int r = 0; r < identity.ranks; ++r) {
      if (color >= 0 && choices[static_cast<size_t>(r)].color == color) ascending.push_back(r);
    }
    if (ascending.empty()) {
      call->Finish();
      return std::shared_ptr<Communicator>();
    }
    std::vector<int> members = ascending;
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
      return choices[static_cast<size_t>(a)].key < choices[static_cast<size_t>(b)].key;
    });
    const std::shared_ptr<MakingCall> among = call->Continue(ascending);
    call->Finish();
    options.identity.rank = PositionOf(identity.rank, members);
    options.identity.ranks = static_cast<int>(members.size());
    Made comm = SetupAmong(among.get(), members, options);
    if (comm.ok()) among->Finish();
    return comm;
  });
}

Result<std::shared_ptr<Communicator>> Grow(MakingCall* call, int ranks, GrowId known, const boot::UniqueId& id,
                                           const Config& config, const std::atomic<bool>* abort, bool* disagree) {
  *disagree = false;
  std::optional<boot::UniqueId> offered;
  if (known != GrowId::kNone) offered = id;
  Made made = CarryOut(call, [&]() -> Made {
    const Identity& identity = call->comm()->identity();
    const SetupOptions options = MakeOptions(identity.rank, ranks, identity.device, config, abort);
    call->SetLimits(options.deadline, abort);
    const Offer mine{known, ranks, id};
    std::vector<Offer> offers(call->group().size());
    AXCCL_RETURN_IF_ERROR(call->AllGather(&mine, sizeof(mine), offers.data()));
    const auto other = std::find_if(offers.begin(), offers.end(), [&](const Offer& o) { return o.ranks != ranks; });
    const auto offer = std::max_element(offers.begin(), offers.end(),
                                        [](const Offer& a, const Offer& b) { return a.known < b.known; });
    if (other != offers.end()) {
      *disagree = true;
      call->Finish();  // the other ranks find the same
      return MakeStatus(Code::kInvalidUsage, "rank %d grows to %d ranks and rank %d to %d; pass the same nRanks on all",
                        identity.rank, ranks, static_cast<int>(other - offers.begin()), other->ranks);
    }
    if (offer->known == GrowId::kNone) {
      call->Finish();
      return MakeStatus(Code::kInvalidArgument,
                        "no present rank has an id for new ranks; one calls ncclCommGetUniqueId before each grow");
    }
    offered = offer->id;
    // The rendezvous does not notice a rank that gives up on its way there; the call does.
    Status broken;
    const auto stop = [&] { return !(broken = call->WhyBroken()).ok(); };
    auto session = boot::Session::Join(offer->id, identity.rank, ranks, options.deadline, stop);
    if (!session.ok()) return broken.ok() ? session.status() : broken;
    call->Finish();
    const auto exchange = MakeBootExchange(std::move(session).value());
    return Setup(exchange.get(), options);
  });
  // New ranks know only the rendezvous. After a refusal the present ranks may agree and call again.
  if (!made.ok() && offered.has_value() && made.status().code() != Code::kInvalidUsage)
    boot::GiveUp(*offered, made.status());
  return made;
}

}  // namespace axccl::comm
