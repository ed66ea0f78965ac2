// The extension module axccl._core.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <optional>
#include <string>

#include "tools/python/core/communicator.h"
#include "tools/python/core/documentation.h"
#include "tools/python/core/errors.h"

namespace axccl::python {
namespace {

using namespace nb::literals;  // NOLINT: "x"_a

void DefineCollectives(nb::class_<Channel>* c) {
  c->def("all_reduce", &Channel::AllReduce, "x"_a.none(), "op"_a = "sum", nb::kw_only(), "out"_a = nb::none(),
         kAllReduce);
  c->def("all_gather", &Channel::AllGather, "x"_a.none(), "axis"_a = 0, nb::kw_only(), "out"_a = nb::none(),
         kAllGather);
  c->def("reduce_scatter", &Channel::ReduceScatter, "x"_a.none(), "op"_a = "sum", "axis"_a = 0, nb::kw_only(),
         "out"_a = nb::none(), kReduceScatter);
  c->def("all_to_all", &Channel::AllToAll, "x"_a.none(), "split_axis"_a = 0, "concat_axis"_a = 0, nb::kw_only(),
         "out"_a = nb::none(), kAllToAll);
  c->def("broadcast", &Channel::Broadcast, "x"_a.none(), "root"_a = 0, nb::kw_only(), "out"_a = nb::none(), kBroadcast);
  c->def("reduce", &Channel::Reduce, "x"_a.none(), "op"_a = "sum", "root"_a = 0, nb::kw_only(), "out"_a = nb::none(),
         kReduce);
  c->def("gather", &Channel::Gather, "x"_a.none(), "root"_a = 0, "axis"_a = 0, nb::kw_only(), "out"_a = nb::none(),
         kGather);
  c->def("scatter", &Channel::Scatter, "x"_a.none(), "root"_a = 0, "axis"_a = 0, nb::kw_only(), "out"_a = nb::none(),
         kScatter);
  c->def("barrier", &Channel::Barrier, kBarrier);
}

void DefineUneven(nb::class_<Channel>* c) {
  c->def("all_gather_v", &Channel::AllGatherV, "x"_a.none(), "extents"_a, "axis"_a = 0, nb::kw_only(),
         "out"_a = nb::none(), kAllGatherV);
  c->def("reduce_scatter_v", &Channel::ReduceScatterV, "x"_a.none(), "extents"_a, "op"_a = "sum", "axis"_a = 0,
         nb::kw_only(), "out"_a = nb::none(), kReduceScatterV);
  c->def("gather_v", &Channel::GatherV, "x"_a.none(), "extents"_a, "root"_a = 0, "axis"_a = 0, nb::kw_only(),
         "out"_a = nb::none(), kGatherV);
  c->def("scatter_v", &Channel::ScatterV, "x"_a.none(), "extents"_a, "root"_a = 0, "axis"_a = 0, nb::kw_only(),
         "out"_a = nb::none(), kScatterV);
  c->def("all_to_all_v", &Channel::AllToAllV, "x"_a.none(), "send_extents"_a, "receive_extents"_a, "axis"_a = 0,
         nb::kw_only(), "out"_a = nb::none(), kAllToAllV);
  c->def("ragged_all_to_all", &Channel::RaggedAllToAll, "x"_a.none(), "out"_a, "input_offsets"_a, "send_extents"_a,
         "output_offsets"_a, "receive_extents"_a, "axis"_a = 0, kRaggedAllToAll);
}

void DefineMessages(nb::class_<Channel>* c) {
  c->def("send", &Channel::Send, "x"_a.none(), "peer"_a, kSend);
  c->def("recv", &Channel::Recv, "out"_a, "peer"_a, kRecv);
  c->def("sendrecv", &Channel::SendRecv, "x"_a.none(), "destination"_a, "out"_a, "source"_a, kSendRecv);
  c->def("permute", &Channel::Permute, "x"_a.none(), "pairs"_a, nb::kw_only(), "out"_a = nb::none(), kPermute);
}

// Ends of this process have no meaning in another one, and a copy would end the original.
void RefuseCopies(nb::class_<Channel>* c) {
  c->def("__reduce__", [](nb::handle self) -> nb::object {
    RaiseType(
        "%s cannot be copied or pickled: it is this process's end of it; send the bytes of axccl.unique_id() and make "
        "one there",
        nb::cast<std::string>(nb::type_name(self.type())).c_str());
  });
}

void DefineChannel(nb::module_* m) {
  nb::class_<Channel> c(*m, "Channel", kChannel);
  c.def_prop_ro("rank", &Channel::rank, "This rank's number on the channel; -1 if it is in none of its groups.");
  c.def_prop_ro("size", &Channel::size, "Ranks of this rank's group on the channel; 0 if it is in none.");
  c.def_prop_ro("group", &Channel::group, "The number of this rank's group on the channel; -1 if it is in none.");
  c.def_prop_ro("id", &Channel::id, "The channel's id; 0 for a communicator's own.");
  c.def("close", &Channel::CloseChannel, kCloseChannel);
  c.def("__enter__", [](nb::object self) { return self; });
  c.def("__exit__", [](nb::object self, nb::args) { self.attr("close")(); });
  c.def("__repr__", [](nb::handle self) {
    const Channel& channel = nb::cast<const Channel&>(self);
    return "<axccl." + nb::cast<std::string>(self.type().attr("__name__")) + " rank " + std::to_string(channel.rank()) +
           " of " + std::to_string(channel.size()) + (channel.open() ? ">" : ", closed>");
  });
  DefineCollectives(&c);
  DefineUneven(&c);
  DefineMessages(&c);
  RefuseCopies(&c);
}

void DefineCommunicator(nb::module_* m) {
  nb::class_<Communicator, Channel> c(*m, "Communicator", kCommunicator);
  c.def(
      "__init__",
      [](Communicator* self, int rank, int size, nb::handle unique_id, std::optional<std::string> name,
         std::optional<double> timeout) {
        new (self) Communicator(Communicator::Join(rank, size, unique_id, std::move(name), timeout));
      },
      "rank"_a, "size"_a, "unique_id"_a, nb::kw_only(), "name"_a = nb::none(), "timeout"_a = nb::none());
  c.def_prop_rw("timeout", &Communicator::timeout, &Communicator::SetTimeout, kTimeout);
  c.def("split", &Communicator::Split, "color"_a.none(), "key"_a = 0, kSplit);
  c.def("channel", &Communicator::MakeChannel, "groups"_a = nb::none(), nb::kw_only(), "id"_a = 0, "mode"_a = "ranks",
        "replicas"_a = nb::none(), "group_order"_a = false, kMakeChannel);
  c.def("mesh_channel", &Communicator::MakeMeshChannel, "mesh"_a, "along"_a, nb::kw_only(), "id"_a = 0,
        "group_order"_a = false, kMeshChannel);
  c.def_prop_ro(
      "handle", [](const Communicator& self) { return reinterpret_cast<uintptr_t>(self.owner()->comm("handle")); },
      "The library's ncclComm_t as a number, for calls by ctypes. It lives until close or abort.");
  c.def("link", &Communicator::Link, "peer"_a, kLink);
  c.def_prop_ro("last_algorithm", &Communicator::LastAlgorithm,
                "The algorithm of the last operation that has ended; \"\" before the first.");
  c.def(
      "close", [](Communicator& self) { self.owner()->Close(); }, kClose);
  c.def(
      "abort", [](Communicator& self) { self.owner()->Abort(""); }, kAbort);
  // Where an exception ends the block, another thread may wait in a call that peers never make.
  c.def(
      "__exit__",
      [](Communicator& self, nb::handle type, nb::handle, nb::handle) {
        const bool leaves = type.is_none() || PyObject_IsSubclass(type.ptr(), PyExc_SystemExit) != 0;
        return leaves ? self.owner()->Close() : self.owner()->Abort(" because an exception left its with statement");
      },
      nb::arg().none(), nb::arg().none(), nb::arg().none());
}

}  // namespace
}  // namespace axccl::python

NB_MODULE(_core, m) {
  using namespace axccl::python;  // NOLINT
  nb::set_leak_warnings(false);   // programs may end with communicators alive
  FindMainThread();
  DefineChannel(&m);
  DefineCommunicator(&m);
  m.def("unique_id", &MakeUniqueId, kUniqueId);
  m.def("local_communicators", &Communicator::MakeAll, nb::arg("size"),
        "All ranks of a new communicator of this process, for one thread each.");
  m.def("allocate", &AllocateBytes, nb::arg("bytes"), "Bytes that peers reach, as an array of uint8 that frees them.");
  m.def("library_version", [] {
    int version = 0;
    (void)axcclGetVersion(&version);
    return version;
  });
}
