// The hub: serves the unique ids of this process to their ranks.
//
// It also admits ranks that connect to a node of a tree (see node.h) in this process.
//
// The process listens only while it must. Listeners for ids of Create open when there is one to serve, and close when
// each id has made its communicator. After a failure they stay open for as long as ranks that began together may take
// to come (AXCCL_INIT_TIMEOUT), so that late ranks get the reason. An id of NCCL_COMM_ID is served while rank 0 of this
// process serves it or ranks are gathered, and one second longer after a failure; nodes of trees are served while there
// are any. An id serves one rendezvous (one after the other for NCCL_COMM_ID). The hub remembers the results of the
// last 256 ids. An id that no rank joins costs about 200 bytes.
//
// Public functions may be called from any thread. Lives as long as the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "src/base/service.h"
#include "src/base/service_acceptor.h"
#include "src/base/status.h"
#include "src/boot/node.h"
#include "src/boot/rendezvous.h"
#include "src/boot/unique_id.h"
#include "src/boot/wire.h"

namespace axccl::boot {

// A rank that has proved that it knows the secret of its id.
struct Arrival {
  service::Fd fd;
  Hello hello;
  JoinBody join;
  FrameCipher cipher;
};

class Hub {
 public:
  // Returns the hub of this process. kInvalidUsage in a child forked from a process to which the library was bound.
  static Result<Hub*> Get();

  // Makes a fresh id, which is served from now on.
  Result<UniqueId> Create();
  // Returns ok if an id may still be joined, as far as this process knows; else the result of its rendezvous.
  static Status CheckOpen(const IdBytes& id);
  // Ends the rendezvous of an id that this process made: ranks that wait there, and those that come late, get `reason`.
  // Has no effect on an id that is over, or that another process or NCCL_COMM_ID serves.
  static void GiveUp(const IdBytes& id, const Status& reason);
  // Serves an id of NCCL_COMM_ID until the lease is dropped (one second longer after a failure, for late ranks).
  class Lease {
   public:
    Lease(Hub* hub, const IdBytes& id) : hub_(hub), id_(id) {}
    ~Lease() { hub_->Release(id_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

   private:
    Hub* const hub_;
    const IdBytes id_;
  };
  // Sets *busy if it failed because another process, which may be exiting, has the port.
  Result<std::unique_ptr<Lease>> Serve(const IdFields& fields, bool* busy);

  // Lets the children of a node of this process connect to it, at `local` (an address of this machine; null: the node
  // has no children).
  Result<NodeAddress> Attach(const std::shared_ptr<Node>& node, const Address* local);
  void Detach(const Node& node);

  struct Counts {
    size_t ids = 0;       // known, including remembered ones
    size_t meetings = 0;  // under way
    size_t guests = 0;    // connections not yet authenticated
    size_t listeners = 0;
    size_t watched = 0;  // descriptors the service thread watches
    size_t timers = 0;
    size_t nodes = 0;  // of ranks of this process that meet in a tree
  };
  Result<Counts> Count();

 private:
  friend class Handshake;

  struct Record {
    Secret secret{};
    bool from_environment = false;
    bool over = false;
    Status ending;                          // why ranks that come now are refused, when `over`
    service::Clock::time_point over_until;  // from_environment only
    std::shared_ptr<Rendezvous> current;
    // For ids from the environment only: leases, listener, and when to stop.
    int leases = 0;
    std::unique_ptr<service::Acceptor> acceptor;
    uint64_t idle_timer = 0;
  };

  Hub(service::Loop* loop, const Hub* parents) : loop_(loop), parents_(parents) {}

  // On the service thread.
  Status OpenStanding(std::vector<Address> addresses);
  Result<std::unique_ptr<service::Acceptor>> Accept(Address* address, bool reuse, bool* busy);
  Status ServeOnLoop(const IdFields& fields, bool* busy);
  void Release(const IdBytes& id);
  Status ListenAt(Address local, NodeAddress* place);
  const Secret* FindSecret(const Hello& hello) const;
  void Enter(Arrival arrival);
  void OnOver(const IdBytes& id, Rendezvous* meeting, const Status& status);
  // Refuses ranks that come to the id of Create from now on. After a failure they can still come, for the reason.
  void EndId(const IdBytes& id, Record* record, bool failed, Status ending);
  void CloseWhenIdle(const IdBytes& id, Record* record);
  void CloseUnneeded();

  service::Loop* const loop_;
  // The hub of the process this one was forked from, which serves its ids; kept, or leak checkers would report it.
  [[maybe_unused]] const Hub* const parents_;
  std::map<IdBytes, Record> records_;
  std::deque<IdBytes> remembered_;  // over, oldest first
  size_t open_ids_ = 0;             // ids of Create for which ranks may still come
  std::vector<Address> standing_;
  std::vector<std::unique_ptr<service::Acceptor>> acceptors_;
  std::map<IdBytes, std::shared_ptr<Node>> nodes_;
  std::vector<std::pair<Address, std::unique_ptr<service::Acceptor>>> node_acceptors_;
  size_t expected_ranks_ = 0;  // of the meetings in progress
  size_t meetings_ = 0;
};

}  // namespace axccl::boot
