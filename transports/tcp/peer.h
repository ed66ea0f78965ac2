// A process on another machine: the data lines to it, and the ranks here that have a peer there.
//
// The lines are made when one of the two processes sends the other something that does not go aside. It opens
// once all stand; what is sent before waits. One line that breaks is a failure of the peer, because what was sent over
// it may be lost. A peer that has failed stays so; the next communicator makes a new one.
//
// mutex() guards all of it. Holding it, no other lock of this transport may be taken, except by WantToSend, and those
// of Lines.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "transports/remote/lines.h"
#include "transports/remote/outgoing.h"
#include "transports/tcp/connection.h"
#include "transports/tcp/outgoing.h"
#include "transports/tcp/reach.h"

namespace axccl::tcp {

class Worker;

class Peer {
 public:
  using ProcessId = remote::Lines::ProcessId;

  // `rails`: this process's own, one for each line, in the order in which they are used.
  Peer(Worker* worker, const ProcessId& process, std::vector<uint8_t> rails, const Protection& protection);

  const ProcessId& process() const { return process_; }
  std::mutex& mutex() { return mutex_; }
  // Notified at every answer to a flush, and when the peer fails.
  std::condition_variable& changed() { return changed_; }
  bool failed() const { return failed_; }
  // Whether there are data lines, or will be.
  bool called() const { return called_; }
  size_t lanes() const { return lanes_.size(); }
  // A larger message is divided, so that several lanes take parts of it.
  size_t most_bytes() const { return most_bytes_; }

  void Add(Reach* reach);
  void Remove(Reach* reach);
  // Null: its communicator is gone.
  Reach* Find(const remote::Reach::Key& key) const;
  bool has_reaches() const { return !reaches_.empty(); }
  std::vector<std::shared_ptr<Reach>> Reaches() const;

  // The line over that rail stands. Returns its connection; null if there can be none.
  std::shared_ptr<Connection> Opened(uint8_t rail, service::Fd fd, const remote::LineSession& session);

  // After Opened, once the connection is watched: sends what waited, if the peer is open now.
  void SendDelayed();

  std::unique_ptr<Outgoing> TakeSpare();
  void PutSpare(std::unique_ptr<Outgoing> sent);
  // Sends it on the best lane, or, until the peer is open, later.
  void Send(std::unique_ptr<Outgoing> frame);
  // Keeps it for the next that is sent. What a peer that is not open yet is sent waits in any case.
  void SendLater(std::unique_ptr<Outgoing> frame);
  // Sends it on the lifeline, if there is no data line.
  void SendAside(std::unique_ptr<Outgoing> frame);
  // The same without a turn, and through other processes if there is no lifeline.
  void SendState(std::unique_ptr<Outgoing> frame);
  // A copy of it goes through that process alone, as a notice of that kind. Returns its number (Lines::TellBy).
  uint32_t SendBy(const ProcessId& relay, remote::Notice::Kind kind, const Outgoing& frame);
  // Sends what is kept, if some of it is of that rank; returns whether it is.
  bool SendKept(const Reach* reach);
  void SendControl(size_t lane, const remote::WireControl& control, std::shared_ptr<Reach> owner);
  void DropDelayed(const Reach* reach);
  // The lane of a connection.
  size_t LaneOf(const void* connection) const;

  // ---- for connections ----
  // A message whose data are here, and which takes its turn, or takes effect at once. Returns false if it is none.
  bool Take(std::span<const std::byte> header, std::span<const std::byte> data, bool in_turn = true);
  void TakeControl(const Connection* connection, const remote::WireControl& control);
  void WantToSend(Connection* connection, bool wants);

  // Gives the peer up, and cuts its lines, unless that has been done.
  void Fail(const std::string& why);

 private:
  struct Lane {
    uint8_t rail = 0;
    std::shared_ptr<Connection> connection;  // null: the line does not stand yet
  };

  void Delay(std::unique_ptr<Outgoing> frame, bool control);
  size_t Choose(size_t bytes);
  void QueueKept();
  void Post(size_t lane, std::unique_ptr<Outgoing> frame);

  Worker* const worker_;
  const ProcessId process_;
  const Protection protection_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Lane> lanes_;
  bool called_ = false, open_ = false, failed_ = false;
  size_t most_bytes_ = 256u << 10;
  remote::LaneChoice choice_;
  std::map<remote::Reach::Key, Reach*> reaches_;
  struct Delayed {
    std::unique_ptr<Outgoing> frame;
    bool control = false;
  };
  std::vector<Delayed> delayed_;  // until the peer is open
  std::vector<std::unique_ptr<Outgoing>> kept_;
  std::vector<std::unique_ptr<Outgoing>> spares_;
};

}  // namespace axccl::tcp
