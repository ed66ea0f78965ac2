// A rank's side of a rendezvous in a tree: checks in, finds its neighbours, and leaves the rest to its node.
#include <sodium.h>

#include <algorithm>
#include <span>
#include <utility>

#include "src/base/log.h"
#include "src/boot/node.h"
#include "src/boot/session.h"

namespace axccl::boot {
namespace {

Secret TreeSecret(const std::vector<IdFields>& ids) {
  Secret secret;
  crypto_generichash_state state;
  constexpr std::string_view kPurpose = "axccl secret of a tree";
  crypto_generichash_init(&state, reinterpret_cast<const unsigned char*>(kPurpose.data()), kPurpose.size(),
                          secret.size());
  for (const IdFields& id : ids) {
    crypto_generichash_update(&state, id.id.data(), id.id.size());
    crypto_generichash_update(&state, id.secret.data(), id.secret.size());
  }
  crypto_generichash_final(&state, secret.data(), secret.size());
  sodium_memzero(&state, sizeof state);
  return secret;
}

class TreeSession : public Session {
 public:
  TreeSession(const std::vector<IdFields>& ids, int rank, int nranks, const Patience& patience, Hub* hub,
              std::shared_ptr<Node> node)
      : ids_(ids), rank_(rank), nranks_(nranks), patience_(patience), hub_(hub), node_(std::move(node)) {}

  ~TreeSession() override {
    if (service::Forked()) return;
    node_->Leave();
    hub_->Detach(*node_);
    for (IdFields& id : ids_) sodium_memzero(id.secret.data(), id.secret.size());
  }

  Status Join() {
    const Status status = Meet();
    if (!status.ok()) return node_->GiveUp(status);
    AXCCL_INFO(kBootstrap, "rendezvous: rank %d of %d has its place in the tree, %zu ranks below", rank_, nranks_,
               node_->branch().children.size());
    return Status();
  }

  Status AllGather(const void* mine, size_t bytes, void* all) override {
    AXCCL_RETURN_IF_ERROR(service::CheckNotForked("rendezvous"));
    if (bytes == 0 || bytes > kMaxContribution) {
      return MakeStatus(Code::kInternalError, "rendezvous: exchange of %zu bytes, allowed are 1 to %zu", bytes,
                        kMaxContribution);
    }
    Status status = node_->AllGather(patience_, std::span(static_cast<const std::byte*>(mine), bytes),
                                     std::span(static_cast<std::byte*>(all), bytes * static_cast<size_t>(nranks_)));
    return status.ok() ? status : node_->GiveUp(status);
  }

  void Fail(const Status& reason) override {
    if (!service::Forked()) (void)!node_->GiveUp(reason).ok();
  }

 private:
  int roots() const { return static_cast<int>(ids_.size()); }

  Status Meet() {
    const int root = RootOf(rank_, nranks_, roots());
    AXCCL_ASSIGN_OR_RETURN(lease_, ServeWhereDue(ids_[static_cast<size_t>(root)], rank_, nranks_, patience_));
    Status status = CheckIn(root, false);
    // A group may have failed before its leader came: the hub of the parent, which waits for the leader, has to get the
    // error.
    if (!status.ok()) status = node_->GiveUp(status);
    const int parent = node_->branch().parent;
    const int above = parent < 0 ? root : RootOf(parent, nranks_, roots());
    if (above != root) {
      const Status there = CheckIn(above, true);
      if (status.ok()) status = there;
    }
    AXCCL_RETURN_IF_ERROR(status);
    StartBody start;
    AXCCL_RETURN_IF_ERROR(node_->AwaitStart(patience_, &start));
    if (parent >= 0) {
      status = Climb(parent, start);
      // The parent may have got the reason of the end before this rank does.
      if (status.code() == Code::kTimeout) return status;
      if (!status.ok()) return node_->AwaitReason(status, patience_.stop);
    }
    AXCCL_RETURN_IF_ERROR(node_->AwaitLinks(patience_));
    // A group may be complete long before the others are.
    const std::byte here{};
    std::vector<std::byte> all(static_cast<size_t>(nranks_));
    return node_->AllGather(patience_, std::span(&here, 1), all);
  }

  Status CheckIn(int root, bool above) {
    const IdFields& id = ids_[static_cast<size_t>(root)];
    AXCCL_RETURN_IF_ERROR(Hub::CheckOpen(id.id));
    Dial dial(id, Role::kRank, rank_, nranks_, patience_);
    const auto introduce = [&](JoinBody* join) -> Status {
      if (!above) {
        AXCCL_ASSIGN_OR_RETURN(const Address local, dial.LocalAddress());
        AXCCL_ASSIGN_OR_RETURN(listens_, hub_->Attach(node_, node_->branch().children.empty() ? nullptr : &local));
      }
      join->roots = static_cast<uint32_t>(roots());
      join->root = static_cast<uint32_t>(root);
      join->listens = listens_;
      return Status();
    };
    AXCCL_RETURN_IF_ERROR(dial.Enter(introduce));
    return node_->AddHub(&dial, above);
  }

  Status Climb(int parent, const StartBody& start) {
    const NodeAddress& place = start.parent;
    JoinBody named;
    named.pid = start.pid;
    named.host = start.host;
    const std::string whom = DescribeRank(parent, named);
    if (place.num_addresses != 1 || (place.address[0].family != 4 && place.address[0].family != 6)) {
      return MakeStatus(Code::kRemoteError, "rendezvous: rank %d of %d did not get the address of %s", rank_, nranks_,
                        whom.c_str());
    }
    IdFields id;
    id.id = place.node;
    id.secret = node_->secret();
    id.num_addresses = 1;
    id.address = place.address;
    Dial dial(id, Role::kChild, rank_, nranks_, patience_, whom + " at " + ToText(place.address[0]));
    AXCCL_RETURN_IF_ERROR(dial.Enter(nullptr));
    return node_->AddParent(&dial, whom);
  }

  std::vector<IdFields> ids_;
  const int rank_;
  const int nranks_;
  const Patience patience_;
  Hub* const hub_;
  const std::shared_ptr<Node> node_;
  std::unique_ptr<Hub::Lease> lease_;
  NodeAddress listens_;
};

}  // namespace

Result<std::unique_ptr<Session>> JoinTree(const std::vector<IdFields>& ids, int rank, int nranks,
                                          const Patience& patience) {
  AXCCL_ASSIGN_OR_RETURN(Hub* const hub, Hub::Get());
  AXCCL_ASSIGN_OR_RETURN(service::Loop* const loop, service::Loop::Get());
  auto node = std::make_shared<Node>(loop, rank, nranks, static_cast<int>(ids.size()), TreeSecret(ids));
  auto session = std::make_unique<TreeSession>(ids, rank, nranks, patience, hub, std::move(node));
  AXCCL_RETURN_IF_ERROR(session->Join());
  return std::unique_ptr<Session>(std::move(session));
}

}  // namespace axccl::boot
