// The TCP state of this process: the peers and their connections, which its threads and one of the library's attend to
// (remote/attendance.h). It lives as long as the process.
//
// Order of locks: peers_mutex_ or that of attendance, then that of a peer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "src/base/service_fd.h"
#include "src/base/status.h"
#include "transports/remote/address.h"
#include "transports/remote/attendance.h"
#include "transports/remote/lines.h"
#include "transports/tcp/peer.h"

namespace axccl::tcp {

class Worker final : public remote::Attendance {
 public:
  using ProcessId = Peer::ProcessId;

  // The first call makes it, for those rails of this process.
  static Result<Worker*> Get(const std::vector<remote::RailAddress>& rails);

  const std::vector<remote::RailAddress>& rails() const { return rails_; }
  // The peer of that process, which is made where there is none, or it has failed. `rails` as in Peer.
  std::shared_ptr<Peer> PeerOf(const ProcessId& process, const std::vector<uint8_t>& rails,
                               const Protection& protection);

  void Drive() override;
  // As Progress, and makes the library's thread receive what comes next, unless a thread polls.
  void ProgressThenLeave();

  // ---- for peers, with their lock held ----
  // Something that must come is to be passed on: looks after Lines::kRelayPatience whether it has been.
  void WatchRelays();
  void WantToSend(Connection* connection, bool wants);

 private:
  Worker() = default;
  Status Start(const std::vector<remote::RailAddress>& rails);
  bool Watch() override;
  void Attend() override;
  size_t ServeWarm();
  void ServeReady();
  void Serve(Connection* connection);
  void Take(const remote::Lines::Key& key, service::Fd fd, const remote::LineSession& session);
  bool TakeMessage(const ProcessId& from, const remote::Notice& notice);
  std::shared_ptr<Peer> Find(const ProcessId& process);
  void Open(const std::shared_ptr<Peer>& peer, uint8_t rail, service::Fd fd, const remote::LineSession& session);
  bool ReceiveLast(const ProcessId& from);
  void Fail(const ProcessId& process, const std::string& why);
  void LoseRelay(const ProcessId& process);
  void LookAtRelays();
  template <class Look>  // (Reach*)
  void ForEachReach(const Look& look);
  bool InUse();

  std::atomic<bool> watches_relays_{false};
  std::vector<remote::RailAddress> rails_;
  service::Fd ready_;  // epoll of all connections
  service::Fd woken_;  // epoll of that one, on which the library's thread sleeps

  std::mutex peers_mutex_;
  std::map<ProcessId, std::shared_ptr<Peer>> peers_;
  // Lines of processes that have advanced further than this one: it has no peer for them yet.
  struct Early {
    service::Fd fd;
    remote::LineSession session;
  };
  std::map<remote::Lines::Key, Early> early_;

  struct Watched {
    std::shared_ptr<Peer> peer;
    std::shared_ptr<Connection> connection;
  };
  std::vector<Watched> connections_;  // guarded by mutex(), as is what follows
  uint64_t looks_ = 0;                // so far
};

}  // namespace axccl::tcp
