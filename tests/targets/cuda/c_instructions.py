"""Instructions of PTX as statements of C, with the words of `emulated.h`."""

from __future__ import annotations

import re

from tests.targets.cuda.ptx import PtxError, listed

_REGISTER = re.compile(r"%[a-zA-Z]+\d*(?![\w.])")
_ADDRESS = re.compile(r"\[([%\w$.]+)(?:\+(-?\d+))?\]")
_TILE = re.compile(r"\[(%\w+), \{(%\w+), (%\w+)\}\]")
_SHAPE = re.compile(r"m64n(\d+)k(\d+)")
_SPECIAL = {"%tid.x": "t", "%ctaid.x": "block", "%ntid.x": "(u32)T", "%laneid": "(t % LANES)"}
_WORDS = {"f16": "u16", "f32": "u32", "f64": "u64"}
_WIDE = {"8": "16", "16": "32", "32": "64", "64": "128"}
_INFIX = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
_ORDERS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_ORDERS |= {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
_OPPOSITE = {"lt": ">=", "le": ">", "gt": "<=", "ge": "<"}
_ROUNDED = {"rni": "rint", "rmi": "floor", "rpi": "ceil", "rzi": "trunc"}
_UNARY = {
    "neg": "-{}",
    "sqrt": "(({kind})sqrt({}))",
    "rcp": "(1 / {})",
    "ex2": "(({kind})exp2({}))",
    "rsqrt": "(({kind})(1 / sqrt({})))",
}


def registers_of(operands):
    """Return the registers in some operands that are not special."""
    named = _REGISTER.findall(" ".join(operands))
    return [each for each in named if each not in _SPECIAL]


class Writer:
    """Writes instructions from a number on. With `are_arrays` they are of whole warps or
    warpgroups, and each register is an array over the threads of a block."""

    def __init__(self, kernel, number, are_arrays=False):
        self._kernel, self._next, self._are_arrays = kernel, number, are_arrays
        self._lines: list[str] = []

    def lines(self, instruction):
        """Return the statements of the next instruction."""
        self._at, self._number = instruction, self._next
        self._next += 1
        name = instruction.name
        if method := getattr(self, f"_do_{name}", None):
            method()
        elif name in _INFIX:
            self._computed(f"({{}} {_INFIX[name]} {{}})")
        elif name in _UNARY:
            self._computed(_UNARY[name])
        else:
            raise PtxError(f"an opcode that is not written as C: {instruction.text}")
        lines, self._lines = self._lines, []
        if instruction.guard is None:
            return lines
        register, is_negated = instruction.guard
        condition = f"{'!' if is_negated else ''}{self._name(register)}"
        return [f"if ({condition}) {{ {' '.join(lines)} }}"]

    # -- operands

    def _name(self, register):
        return f"R_{register[1:]}[t]" if self._are_arrays else register[1:]

    def _bits(self, operand):
        """Return an operand as an unsigned integer."""
        kernel = self._kernel
        if operand in _SPECIAL:
            return _SPECIAL[operand]
        if operand in kernel.places:
            return f"{kernel.places[operand]}ull"
        if operand in kernel.maps:
            return f"arguments[{kernel.params.index(operand)}]"
        if operand in kernel.constants:
            at = len(kernel.params) + list(kernel.constants).index(operand)
            return f"arguments[{at}]"
        if operand[0] == "%":
            return self._name(operand)
        if operand[:2] in ("0f", "0d"):
            return f"0x{operand[2:]}ull"
        return f"{int(operand.rstrip('U'), 0) % (1 << 64)}ull"

    def _value(self, operand, kind):
        """Return an operand as a number of a type."""
        if kind == "pred":
            return f"({self._bits(operand)} != 0)"
        if kind in _WORDS:
            return f"{kind}_of(({_WORDS[kind]}){self._bits(operand)})"
        return f"(({_type(kind)})(u{kind[1:]})({self._bits(operand)}))"

    def _put(self, register, value, kind):
        """Write a register, extended to its width."""
        if register == "_":
            return
        if kind in _WORDS:
            value = f"{_WORDS[kind]}_of_{kind}({value})"
        elif kind != "pred":
            value = f"(({_type(kind)})({value}))"
        bits = self._kernel.bits(register)
        self._lines.append(f"{self._name(register)} = (u{max(8, bits)})({value});")

    def _computed(self, form, kind=None):
        """Put the result of a form, in which braces are the operands but the first."""
        kind = kind or self._at.suffixes[-1]
        result, *sources = self._at.operands
        self._put(result, form.format(*(self._value(s, kind) for s in sources), kind=kind), kind)

    # -- arithmetic

    def _do_add(self):
        if "cc" in self._at.suffixes or self._at.name.endswith("c"):
            self._carried("+")
        else:
            self._computed("({} + {})")

    def _do_sub(self):
        if "cc" in self._at.suffixes or self._at.name.endswith("c"):
            self._carried("-")
        else:
            self._computed("({} - {})")

    _do_addc, _do_subc = _do_add, _do_sub

    def _carried(self, sign):
        """A word of a sum of several, which hands a carry to the next one."""
        kind = f"u{self._at.suffixes[-1][1:]}"
        result, *sources = self._at.operands
        wide = f"u{_WIDE[kind[1:]]}"
        a, b = (f"({wide}){self._value(each, kind)}" for each in sources)
        taken = " + carry" if sign == "+" else " - carry"
        more = taken if self._at.name.endswith("c") else ""
        self._lines.append(f"{{ {wide} all = {a} {sign} {b}{more};")
        self._put(result, "all", kind)
        if "cc" in self._at.suffixes:
            self._lines.append(f"carry = all >> {kind[1:]} & 1;")
        self._lines.append("}")

    def _do_mul(self):
        self._product("")

    def _do_mad(self):
        self._product(" + {}")

    def _product(self, added):
        kind, suffixes = self._at.suffixes[-1], self._at.suffixes
        result, *sources = self._at.operands
        a, b = (self._value(each, kind) for each in sources[:2])
        wide = f"{kind[0]}{_WIDE[kind[1:]]}" if kind[0] in "su" else ""
        if "wide" in suffixes:
            value, kind = f"({wide}){a} * ({wide}){b}", wide
        elif "hi" in suffixes:
            value = f"({kind})(({wide}){a} * ({wide}){b} >> {kind[1:]})"
        else:
            value = f"{a} * {b}"
        if added:
            value += added.format(self._value(sources[2], kind))
        self._put(result, value, kind)

    def _do_fma(self):
        if (kind := self._at.suffixes[-1]) == "f16":
            self._computed("(f16)__builtin_fma((f64){}, (f64){}, (f64){})")
        else:
            self._computed("__builtin_fma{}({{}}, {{}}, {{}})".format("f" * (kind == "f32")))

    def _do_div(self):
        self._quotient("/")

    def _do_rem(self):
        self._quotient("%")

    def _quotient(self, sign):
        kind = self._at.suffixes[-1]
        if kind in _WORDS:
            self._computed("({} / {})")
            return
        result, *sources = self._at.operands
        a, b = (self._value(each, kind) for each in sources)
        # In 64 bits the least integer can be divided by -1.
        self._put(result, f"{b} ? ({kind[0]}64){a} {sign} ({kind[0]}64){b} : 0", kind)

    def _do_min(self):
        self._extreme("<")

    def _do_max(self):
        self._extreme(">")

    def _extreme(self, sign):
        kind = self._at.suffixes[-1]
        result, *sources = self._at.operands
        a, b = (self._value(each, kind) for each in sources)
        if kind in _WORDS:
            of_nan = "_nan" if "NaN" in self._at.suffixes else ""
            self._put(result, f"{self._at.name}{of_nan}_{kind}({a}, {b})", kind)
        else:
            self._put(result, f"{a} {sign} {b} ? {a} : {b}", kind)

    def _do_abs(self):
        kind = self._at.suffixes[-1]
        value = self._value(self._at.operands[1], kind)
        size = f"fabs({value})" if kind in _WORDS else f"{value} < 0 ? -{value} : {value}"
        self._put(self._at.operands[0], size, kind)

    def _do_copysign(self):
        result, sign, size = self._at.operands
        kind = self._at.suffixes[-1]
        self._put(result, f"copysign({self._value(size, kind)}, {self._value(sign, kind)})", kind)

    def _do_not(self):
        self._computed("!{}" if self._at.suffixes[-1] == "pred" else "~{}")

    def _do_clz(self):
        kind = f"u{self._at.suffixes[-1][1:]}"
        value = self._value(self._at.operands[1], kind)
        unused = 64 - int(kind[1:])
        self._put(
            self._at.operands[0],
            f"{value} ? __builtin_clzll({value}) - {unused} : {kind[1:]}",
            "u32",
        )

    def _do_shl(self):
        self._shift("u")

    def _do_shr(self):
        self._shift("s" if self._at.suffixes[-1][0] == "s" else "u")

    def _shift(self, sign):
        kind = sign + self._at.suffixes[-1][1:]
        result, source, amount = self._at.operands
        value = f"{self._at.name}_{kind}({self._value(source, kind)}, {self._value(amount, 'u32')})"
        self._put(result, value, kind)

    def _do_shf(self):
        result, low, high, amount = self._at.operands
        lower, upper, by = (self._value(each, "u32") for each in (low, high, amount))
        both = f"((u64){upper} << 32 | {lower})"
        moved = f"{both} << ({by} & 31) >> 32"
        if self._at.suffixes[0] == "r":
            moved = f"{both} >> ({by} & 31)"
        self._put(result, moved, "u32")

    def _do_prmt(self):
        self._computed("prmt({}, {}, {})", "u32")

    def _do_bfe(self):
        kind = self._at.suffixes[-1]
        result, source, *where = self._at.operands
        first, bits = (self._value(each, "u32") for each in where)
        self._put(result, f"bfe_{kind}({self._value(source, kind)}, {first}, {bits})", kind)

    def _do_setp(self):
        result, left, right, *more = self._at.operands
        order, kind = self._at.suffixes[0], self._at.suffixes[-1]
        kind = f"u{kind[1:]}" if kind[0] == "b" else kind
        holds = _compared(order, self._value(left, kind), self._value(right, kind), kind)
        if more:
            sign = _INFIX[self._at.suffixes[1]]
            holds = f"({holds}) {sign} {self._value(more[0], 'pred')}"
        self._put(result, holds, "pred")

    def _do_selp(self):
        result, then, otherwise, predicate = self._at.operands
        kind = f"u{self._at.suffixes[-1][1:]}"
        value = f"{self._bits(predicate)} ? {self._value(then, kind)} :"
        self._put(result, f"{value} {self._value(otherwise, kind)}", kind)

    def _do_cvt(self):
        to, source = self._at.suffixes[-2:]
        result, *operands = self._at.operands
        if to.endswith("16x2"):
            upper, lower = (self._halved(each, to) for each in operands)
            self._put(result, f"(u32){upper} << 16 | {lower}", "u32")
        elif to == "bf16":
            self._put(result, self._halved(operands[0], to), "u16")
        elif to == "tf32":
            self._put(result, f"as_tf32({self._value(operands[0], 'f32')})", "u32")
        elif source == "bf16":
            self._put(result, f"({to})bf16_of((u16){self._bits(operands[0])})", to)
        else:
            self._put(result, self._converted(operands[0], to, source), to)

    def _halved(self, operand, to):
        value = self._value(operand, "f32")
        return f"as_bf16({value})" if to[0] == "b" else f"u16_of_f16((f16){value})"

    def _converted(self, operand, to, source):
        value = self._value(operand, source)
        rounding = [_ROUNDED[each] for each in self._at.suffixes if each in _ROUNDED]
        if rounding and source in _WORDS:
            value = f"{rounding[0]}((f64){value})"
        return value if to in _WORDS or source not in _WORDS else f"{to}_from({value})"

    def _do_cvta(self):
        self._put(self._at.operands[0], self._bits(self._at.operands[1]), "u64")

    def _do_mov(self):
        result, source = self._at.operands
        kind = self._at.suffixes[-1]
        if result[0] == "{":
            parts = listed(result)
            half = int(kind[1:]) // len(parts)
            for number, part in enumerate(parts):
                moved = f"{self._value(source, f'u{kind[1:]}')} >> {half * number}"
                self._put(part, moved, f"u{half}")
        elif source[0] == "{":
            parts = listed(source)
            half, whole = int(kind[1:]) // len(parts), f"u{kind[1:]}"
            words = (
                f"({whole}){self._value(each, f'u{half}')} << {half * number}"
                for number, each in enumerate(parts)
            )
            self._put(result, " | ".join(words), whole)
        elif kind == "pred":
            self._put(result, self._bits(source), kind)
        else:
            self._put(result, self._bits(source), f"u{kind[1:]}")

    # -- control

    def _do_bra(self):
        self._lines.append(f"next_ = {self._kernel.labels[self._at.operands[0]]};")

    def _do_ret(self):
        self._lines.append("next_ = END;")

    _do_exit = _do_ret

    # -- memory

    def _address(self, operand):
        base, offset = _ADDRESS.fullmatch(operand).groups()
        kind = "u32" if base[0] == "%" and self._kernel.bits(base) == 32 else "u64"
        return f"({kind})({self._value(base, kind)} + {int(offset or 0)})"

    def _place(self, operand, space, nbytes):
        """Return the place that an operand names."""
        address, end = self._address(operand), f"{nbytes}, {self._end})"
        if space == "global":
            return f"global_at(arrays, count, {address}, {end}"
        if space == "local":
            return f"own_at(own + t * LOCAL, LOCAL, {address}, {end}"
        return f"own_at(shared, SHARED, {address}, {end}"

    def _do_ld(self):
        results, place = self._at.operands
        space, kind = self._at.suffixes[0], self._at.suffixes[-1]
        if space == "param":
            name = _ADDRESS.fullmatch(place)[1]
            self._put(results, f"arguments[{self._kernel.params.index(name)}]", "u64")
            return
        kind = kind if kind[0] == "s" else f"u{kind[1:]}"
        names = listed(results)
        nbytes = int(kind[1:]) // 8 * len(names)
        self._lines.append(f"{{ {kind} loaded[{len(names)}];")
        self._lines.append(f"memcpy(loaded, {self._place(place, space, nbytes)}, {nbytes});")
        for number, name in enumerate(names):
            self._put(name, f"loaded[{number}]", kind)
        self._lines.append("}")

    def _do_st(self):
        place, sources = self._at.operands
        space, kind = self._at.suffixes[0], f"u{self._at.suffixes[-1][1:]}"
        names = listed(sources)
        nbytes = int(kind[1:]) // 8 * len(names)
        values = ", ".join(self._value(each, kind) for each in names)
        self._lines.append(f"{{ {kind} stored[] = {{ {values} }};")
        self._lines.append(f"memcpy({self._place(place, space, nbytes)}, stored, {nbytes}); }}")

    def _do_cp(self):
        if {"commit_group", "wait_group", "wait_all"} & set(self._at.suffixes):
            return
        if "tensor" in self._at.suffixes:
            self._fetch()
            return
        target, source, nbytes, *more = self._at.operands
        taken = self._value(more[0], "u32") if more else nbytes
        to, of = self._place(target, "shared", nbytes), self._place(source, "global", nbytes)
        self._lines.append(f"{{ u8 *to = {to}; u32 taken = {taken}; memset(to, 0, {nbytes});")
        self._lines.append(f"if (taken) memcpy(to, {of}, taken); }}")

    def _fetch(self):
        target, source, _ = self._at.operands
        base, x, y = _TILE.fullmatch(source).groups()
        coordinates = ", ".join(self._value(each, "s32") for each in (x, y))
        of = f"arrays, count, (const struct map *){self._value(base, 'u64')}, {coordinates}"
        self._lines.append(f"fetch({of}, shared, SHARED, {self._address(target)}, {self._end});")

    @property
    def _end(self):
        """The last arguments of a function that checks addresses."""
        return f"{4 * self._number + 1}, &fault, nowhere"

    # -- what waits for copies and products, which are done at once

    def _do_fence(self):
        pass

    def _do_mbarrier(self):
        if "try_wait" in self._at.suffixes:
            self._put(self._at.operands[0], "1", "pred")

    # -- instructions of whole warps and warpgroups

    def _words(self, operand):
        """Return the registers of an operand, each from its warp on."""
        names = ", ".join(f"R_{each[1:]} + w" for each in listed(operand))
        return f"(u32 *[]){{ {names} }}"

    def _do_mma(self):
        shape = next(each for each in self._at.suffixes if each.startswith("m16n8k"))
        left, right = self._at.suffixes[-3:-1]
        depth = shape.removeprefix("m16n8k")
        words = ", ".join(self._words(each) for each in self._at.operands)
        self._lines.append(f"mma_{left}_{right}({depth}, {words});")

    def _do_wgmma(self):
        if "mma_async" not in self._at.suffixes:
            return
        sums, a, b, *options = self._at.operands
        columns, depth = _SHAPE.fullmatch(self._at.suffixes[3]).groups()
        assert options[:3] in (["1"], ["1", "1", "1"]), "sums are added to, and signs are kept"
        across = ", ".join(options[3:] or ["0", "0"])
        name = "_".join(("wgmma", *self._at.suffixes[5:7]))
        factors = ", ".join(self._value(each, "u64") for each in (a, b))
        of = f"{columns}, {depth}, {self._words(sums)}, {factors}, {across}, shared, SHARED"
        # A warpgroup has one descriptor of a factor, that of its first thread.
        self._lines.append(f"{{ u32 t = w; {name}({of}, {self._end}); }}")

    def _do_ldmatrix(self):
        results, place = self._at.operands
        count, across = len(listed(results)), int("trans" in self._at.suffixes)
        self._lines.append(f"{{ u8 *rows[LANES]; for (u32 t = w; t < w + {8 * count}; t++)")
        self._lines.append(f"rows[t - w] = {self._place(place, 'shared', 16)};")
        self._lines.append(f"ldmatrix({count}, {across}, {self._words(results)}, rows); }}")

    def _do_shfl(self):
        result, source, lane, *_ = self._at.operands
        modes = {"bfly": "^", "down": "+", "up": "-"}
        mode = next((modes[each] for each in self._at.suffixes if each in modes), None)
        other = f"(t - w) {mode} {self._value(lane, 'u32')}" if mode else self._value(lane, "u32")
        name = self._name(result.split("|")[0])
        self._lines.append("{ u32 got[LANES]; for (u32 t = w; t < w + LANES; t++) {")
        self._lines.append(f"u32 other = {other}; got[t - w] = R_{source[1:]}")
        self._lines.append("[other < LANES ? w + other : t]; }")
        self._lines.append(f"for (u32 t = w; t < w + LANES; t++) {name} = got[t - w]; }}")


def _type(kind):
    return f"u{kind[1:]}" if kind[0] == "b" else kind


def _compared(order, a, b, kind):
    """Return a comparison; of floats `ne` is ordered, and an order that ends in u holds of NaN."""
    if kind not in _WORDS:
        return f"{a} {_ORDERS[order]} {b}"
    ordered = f"({a} < {b} || {a} > {b})"
    either = f"(isnan({a}) || isnan({b}))"
    named = {"nan": either, "num": f"!{either}", "ne": ordered, "equ": f"!{ordered}"}
    if order in named:
        return named[order]
    if order == "neu":
        return f"{a} != {b}"
    if order.endswith("u"):
        return f"!({a} {_OPPOSITE[order[:-1]]} {b})"
    return f"{a} {_ORDERS[order]} {b}"
