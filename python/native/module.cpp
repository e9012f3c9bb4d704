// nimble_native: what the Python package does at each call that a graph serves, in the stable ABI of CPython (3.9 and
// later). Knows nothing of PyTorch. nimble.objects.native loads it, and has the same in Python.
//
// Any thread that holds Python's lock. Errors are Python's exceptions.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <exception>
#include <memory>
#include <new>
#include <vector>

#include "python/native/chained_words.h"

namespace nimble::python {
namespace {

constexpr int kInterface = 2;  // raised with each change of what Python calls; nimble.objects.native wants the same

struct Released {
  void operator()(PyObject* object) const { Py_XDECREF(object); }
};
using Owned = std::unique_ptr<PyObject, Released>;

// Runs a function that may throw, and makes a Python exception of what it throws.
template <class Function>
auto guarded(Function function, decltype(function()) failed) noexcept -> decltype(function()) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  }
  return failed;
}

// Sets `numbers` to what a Python sequence of integers holds. False, with an exception set, where it holds anything
// else.
bool read_numbers(PyObject* sequence, std::vector<std::uint32_t>& numbers) {
  const Py_ssize_t count = PySequence_Size(sequence);
  if (count < 0) return false;
  numbers.reserve(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Owned item(PySequence_GetItem(sequence, i));
    const unsigned long value = item ? PyLong_AsUnsignedLong(item.get()) : 0;
    if (PyErr_Occurred() != nullptr) return false;
    if (value > UINT32_MAX) {
      PyErr_SetString(PyExc_OverflowError, "a number is too large");
      return false;
    }
    numbers.push_back(static_cast<std::uint32_t>(value));
  }
  return true;
}

bool read_blocks(PyObject* sequence, std::vector<Block>& blocks) {
  const Py_ssize_t count = PySequence_Size(sequence);
  if (count < 0) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Owned item(PySequence_GetItem(sequence, i));
    unsigned int parent = 0, at = 0;
    PyObject* offsets = nullptr;
    if (!item) return false;
    if (!PyTuple_Check(item.get())) {
      PyErr_SetString(PyExc_TypeError, "a block is a tuple");
      return false;
    }
    if (!PyArg_ParseTuple(item.get(), "IIO", &parent, &at, &offsets)) return false;
    Block& block = blocks.emplace_back(Block{.parent = parent, .at = at, .offsets = {}});
    if (!read_numbers(offsets, block.offsets)) return false;
  }
  return true;
}

// The items of a tuple, without a call for each: they follow what all objects of variable size begin with.
std::size_t tuple_items_at = 0;  // 0: not there

PyObject* const* items_of(PyObject* tuple) {
  return reinterpret_cast<PyObject* const*>(reinterpret_cast<const char*>(tuple) + tuple_items_at);
}

bool find_tuple_items() {
  const Owned size(PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyTuple_Type), "__basicsize__"));
  const Owned probe(Py_BuildValue("(OOO)", Py_None, Py_True, Py_False));
  if (!size || !probe) return false;
  const std::size_t at = PyLong_AsSize_t(size.get());
  if (PyErr_Occurred() != nullptr) return false;
  tuple_items_at = at;
  for (Py_ssize_t i = 0; i < 3; ++i)
    if (items_of(probe.get())[i] != PyTuple_GetItem(probe.get(), i)) tuple_items_at = 0;
  return true;
}

// What are_same() compares: some of the objects of a sequence, by their numbers in it.
struct Watched {
  explicit Watched(const std::vector<Block>& blocks) : words(blocks) {}
  ChainedWords words;
  std::vector<std::uint32_t> numbers;
};

struct WatchedObject {
  PyObject ob_base;
  Watched* watched;
};

Watched*& watched_of(PyObject* self) { return reinterpret_cast<WatchedObject*>(self)->watched; }

// The watched objects that are alive: those of `objects`, by `numbers`.
std::unique_ptr<Watched> watch(PyObject* blocks, PyObject* objects, PyObject* numbers) {
  std::vector<Block> layout;
  if (!read_blocks(blocks, layout)) return nullptr;
  auto made = std::make_unique<Watched>(layout);
  if (!read_numbers(numbers, made->numbers)) return nullptr;
  for (const std::uint32_t number : made->numbers) {
    const Owned object(PySequence_GetItem(objects, number));
    if (!object) return nullptr;
    made->words.add(object.get());  // that `objects` holds
  }
  return made;
}

PyObject* new_watched(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  PyObject *blocks = nullptr, *objects = nullptr, *numbers = nullptr;
  if (!PyArg_ParseTuple(arguments, "OOO", &blocks, &objects, &numbers)) return nullptr;
  auto made = guarded([&] { return watch(blocks, objects, numbers); }, nullptr);
  if (!made) return nullptr;
  auto* const allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* self = allocate(type, 0);
  if (self != nullptr) watched_of(self) = made.release();
  return self;
}

void free_watched(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete watched_of(self);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

constexpr std::size_t kAhead = 8;  // objects; what they lead to lies anywhere

// `at(number)` is the object at a number that is less than `size`.
template <bool kThemselves, class At>
bool all_fit(const Watched& watched, std::size_t size, At at) {
  for (std::size_t i = 0; i < watched.numbers.size(); ++i) {
    if (watched.numbers[i] >= size) return false;
    const void* object = at(watched.numbers[i]);
    if (kThemselves) watched.words.prefetch(i + kAhead);
    if (kThemselves ? !watched.words.is_same(i, object) : !watched.words.is_alike(i, object)) return false;
  }
  return true;
}

template <bool kThemselves>
PyObject* compare(PyObject* self, PyObject* objects) {
  const Watched& watched = *watched_of(self);
  bool fit = false;
  if (PyTuple_Check(objects) && tuple_items_at != 0) {
    const PyObject* const* items = items_of(objects);
    fit = all_fit<kThemselves>(watched, static_cast<std::size_t>(PyTuple_Size(objects)),
                               [items](std::size_t i) { return items[i]; });
  } else if (PyList_Check(objects)) {
    fit = all_fit<kThemselves>(watched, static_cast<std::size_t>(PyList_Size(objects)), [objects](std::size_t i) {
      return PyList_GetItem(objects, static_cast<Py_ssize_t>(i));
    });
  } else {
    PyErr_SetString(PyExc_TypeError, "a tuple or a list is needed");
    return nullptr;
  }
  return PyBool_FromLong(fit);
}

PyMethodDef watched_methods[] = {
    {"are_alike", compare<false>, METH_O,
     "Whether these objects at the numbers watched lead to such words, by pointers of their own. Their classes must be "
     "among the words."},
    {"are_same", compare<true>, METH_O,
     "Whether these objects, a tuple or a list, are at the numbers watched the same ones, and lead to the same words. "
     "Those that are "
     "compared must be of the classes of those watched, or the words of their classes be among these."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot watched_slots[] = {
    {Py_tp_doc,
     const_cast<char*>(
         "Watched(blocks, objects, numbers): words in the memory of the objects at these numbers, and of what "
         "they point to. A block is (parent, at, offsets), as in chained_words.h. Holds no object.")},
    {Py_tp_new, reinterpret_cast<void*>(new_watched)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_watched)},
    {Py_tp_methods, watched_methods},
    {0, nullptr}};
PyType_Spec watched_spec = {"nimble_native.Watched", sizeof(WatchedObject), 0, Py_TPFLAGS_DEFAULT, watched_slots};

// all_equal(functions, values): whether each function of a list returns, without arguments, the value at its place in
// another list, as
// == compares lists. Stops at the first that does not.
PyObject* all_equal(PyObject*, PyObject* arguments) {
  PyObject *functions = nullptr, *values = nullptr;
  if (!PyArg_ParseTuple(arguments, "O!O!", &PyList_Type, &functions, &PyList_Type, &values)) return nullptr;
  const Py_ssize_t count = PyList_Size(functions);
  if (PyList_Size(values) != count) Py_RETURN_FALSE;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Owned value(PyObject_CallNoArgs(PyList_GetItem(functions, i)));
    if (!value) return nullptr;
    if (PyList_Size(values) != count || PyList_Size(functions) != count)
      Py_RETURN_FALSE;  // a function has changed them
    PyObject* before = PyList_GetItem(values, i);
    Py_INCREF(before);
    const Owned held(before);
    const int equal = PyObject_RichCompareBool(value.get(), before, Py_EQ);
    if (equal < 0) return nullptr;
    if (equal == 0) Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
}

PyMethodDef functions[] = {
    {"all_equal", all_equal, METH_VARARGS, "Whether each function returns the value at its place."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "nimble_native", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace nimble::python

extern "C" __attribute__((visibility("default"))) PyObject* PyInit_nimble_native() {
  using namespace nimble::python;
  Owned module(PyModule_Create(&definition));
  if (!module || !find_tuple_items() || PyModule_AddIntConstant(module.get(), "INTERFACE", kInterface) < 0)
    return nullptr;
  PyObject* watched = PyType_FromSpec(&watched_spec);
  if (watched == nullptr) return nullptr;
  if (PyModule_AddObject(module.get(), "Watched", watched) < 0) {
    Py_DECREF(watched);
    return nullptr;
  }
  return module.release();
}
