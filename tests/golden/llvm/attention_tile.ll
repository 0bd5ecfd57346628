define i32 @attention_tile(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="512" "no-builtins" {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr i8, ptr %args, i64 16
  %v5 = load ptr, ptr %v4, align 8
  %v6 = getelementptr i8, ptr %args, i64 24
  %v7 = load ptr, ptr %v6, align 8
  %v8 = getelementptr i8, ptr %args, i64 32
  %v9 = load ptr, ptr %v8, align 8
  %v10 = alloca [1024 x i8], align 64 ; packed_values
  %v42 = alloca [1024 x i8], align 64 ; packed
  %v89 = alloca [1728 x i8], align 64 ; add
  %v95 = alloca [576 x i8], align 64 ; matmul
  %v133 = alloca [64 x i8], align 64 ; max
  %v175 = alloca [576 x i8], align 64 ; exp
  %v223 = alloca [64 x i8], align 64 ; sum
  %v257 = alloca [64 x i8], align 64 ; share
  %v265 = alloca [576 x i8], align 64 ; matmul_1_sum
  br label %loop11
loop11:
  %i.packed_values_k_o.13 = phi i64 [ 0, %entry ], [ %v27, %loop11 ]
  %v14 = mul i64 %i.packed_values_k_o.13, 64
  %v15 = getelementptr i8, ptr %v7, i64 %v14
  %v26 = getelementptr i8, ptr %v10, i64 %v14
  %v16 = load <16 x i16>, ptr %v15, align 2
  %v17 = zext <16 x i16> %v16 to <16 x i32>
  %v18 = shl <16 x i32> %v17, splat (i32 16)
  %v19 = bitcast <16 x i32> %v18 to <16 x float>
  %v20 = getelementptr i8, ptr %v15, i64 32
  %v21 = load <16 x i16>, ptr %v20, align 2
  %v22 = zext <16 x i16> %v21 to <16 x i32>
  %v23 = shl <16 x i32> %v22, splat (i32 16)
  %v24 = bitcast <16 x i32> %v23 to <16 x float>
  %v25 = or <16 x i32> %v17, %v23
  store <16 x i32> %v25, ptr %v26, align 2
  %v27 = add nuw nsw i64 %i.packed_values_k_o.13, 1
  %v28 = icmp slt i64 %v27, 10
  br i1 %v28, label %loop11, label %done12
done12:
  br label %loop29
loop29:
  %i.packed_values_k_o_tail.31 = phi i64 [ 0, %done12 ], [ %v40, %loop29 ]
  %v37 = mul i64 %i.packed_values_k_o_tail.31, 64
  %v38 = getelementptr i8, ptr %v10, i64 %v37
  %v32 = fptrunc <16 x float> splat (float 0x0000000000000000) to <16 x bfloat>
  %v33 = bitcast <16 x bfloat> %v32 to <16 x i16>
  %v34 = zext <16 x i16> %v33 to <16 x i32>
  %v35 = shl <16 x i32> %v34, splat (i32 16)
  %v36 = or <16 x i32> %v34, %v35
  %v39 = getelementptr i8, ptr %v38, i64 640
  store <16 x i32> %v36, ptr %v39, align 2
  %v40 = add nuw nsw i64 %i.packed_values_k_o_tail.31, 1
  %v41 = icmp slt i64 %v40, 6
  br i1 %v41, label %loop29, label %done30
done30:
  br label %loop43
loop43:
  %i.packed_k_o.45 = phi i64 [ 0, %done30 ], [ %v60, %loop43 ]
  %v46 = mul i64 %i.packed_k_o.45, 80
  %v47 = getelementptr i8, ptr %v3, i64 %v46
  %v58 = mul i64 %i.packed_k_o.45, 64
  %v59 = getelementptr i8, ptr %v42, i64 %v58
  %v48 = load <16 x i16>, ptr %v47, align 2
  %v49 = zext <16 x i16> %v48 to <16 x i32>
  %v50 = shl <16 x i32> %v49, splat (i32 16)
  %v51 = bitcast <16 x i32> %v50 to <16 x float>
  %v52 = getelementptr i8, ptr %v47, i64 40
  %v53 = load <16 x i16>, ptr %v52, align 2
  %v54 = zext <16 x i16> %v53 to <16 x i32>
  %v55 = shl <16 x i32> %v54, splat (i32 16)
  %v56 = bitcast <16 x i32> %v55 to <16 x float>
  %v57 = or <16 x i32> %v49, %v55
  store <16 x i32> %v57, ptr %v59, align 2
  %v60 = add nuw nsw i64 %i.packed_k_o.45, 1
  %v61 = icmp slt i64 %v60, 8
  br i1 %v61, label %loop43, label %done44
done44:
  br label %loop62
loop62:
  %i.packed_k_o_tail.64 = phi i64 [ 0, %done44 ], [ %v87, %loop62 ]
  %v65 = mul i64 %i.packed_k_o_tail.64, 80
  %v66 = getelementptr i8, ptr %v3, i64 %v65
  %v78 = mul i64 %i.packed_k_o_tail.64, 64
  %v79 = getelementptr i8, ptr %v42, i64 %v78
  %v67 = getelementptr i8, ptr %v66, i64 32
  %v68 = load <4 x i16>, ptr %v67, align 2
  %v69 = zext <4 x i16> %v68 to <4 x i32>
  %v70 = shl <4 x i32> %v69, splat (i32 16)
  %v71 = bitcast <4 x i32> %v70 to <4 x float>
  %v72 = getelementptr i8, ptr %v66, i64 72
  %v73 = load <4 x i16>, ptr %v72, align 2
  %v74 = zext <4 x i16> %v73 to <4 x i32>
  %v75 = shl <4 x i32> %v74, splat (i32 16)
  %v76 = bitcast <4 x i32> %v75 to <4 x float>
  %v77 = or <4 x i32> %v69, %v75
  %v80 = getelementptr i8, ptr %v79, i64 512
  store <4 x i32> %v77, ptr %v80, align 2
  %v81 = fptrunc <16 x float> splat (float 0x0000000000000000) to <16 x bfloat>
  %v82 = bitcast <16 x bfloat> %v81 to <16 x i16>
  %v83 = zext <16 x i16> %v82 to <16 x i32>
  %v84 = shl <16 x i32> %v83, splat (i32 16)
  %v85 = or <16 x i32> %v83, %v84
  %v86 = getelementptr i8, ptr %v79, i64 528
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %v85, ptr align 2 %v86, <16 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false, i1 false>)
  %v87 = add nuw nsw i64 %i.packed_k_o_tail.64, 1
  %v88 = icmp slt i64 %v87, 8
  br i1 %v88, label %loop62, label %done63
done63:
  %v90 = call x86_amx @llvm.x86.tilezero.internal(i16 9, i16 64)
  %v91 = call x86_amx @llvm.x86.tileloadd64.internal(i16 9, i16 32, ptr %v1, i64 32)
  %v92 = call x86_amx @llvm.x86.tileloadd64.internal(i16 8, i16 64, ptr %v42, i64 64)
  %v93 = call float asm sideeffect "vxorps $0, $0, $0\0A\09vaddss $0, $0, $0", "=x"()
  %v94 = call x86_amx @llvm.x86.tdpbf16ps.internal(i16 9, i16 64, i16 32, x86_amx %v90, x86_amx %v91, x86_amx %v92)
  call void @llvm.x86.tilestored64.internal(i16 9, i16 64, ptr %v95, i64 64, x86_amx %v94)
  br label %loop96
loop96:
  %i.score_in_row.98 = phi i64 [ 0, %done63 ], [ %v108, %loop96 ]
  %v99 = mul i64 %i.score_in_row.98, 64
  %v100 = getelementptr i8, ptr %v95, i64 %v99
  %v102 = mul i64 %i.score_in_row.98, 80
  %v103 = getelementptr i8, ptr %v5, i64 %v102
  %v106 = mul i64 %i.score_in_row.98, 192
  %v107 = getelementptr i8, ptr %v89, i64 %v106
  %v101 = load <16 x float>, ptr %v100, align 4
  %v104 = load <16 x float>, ptr %v103, align 4
  %v105 = fadd contract <16 x float> %v101, %v104
  store <16 x float> %v105, ptr %v107, align 4
  %v108 = add nuw nsw i64 %i.score_in_row.98, 1
  %v109 = icmp slt i64 %v108, 9
  br i1 %v109, label %loop96, label %done97
done97:
  %v110 = call x86_amx @llvm.x86.tilezero.internal(i16 9, i16 64)
  %v111 = call x86_amx @llvm.x86.tileloadd64.internal(i16 9, i16 32, ptr %v1, i64 32)
  %v112 = getelementptr i8, ptr %v42, i64 512
  %v113 = call x86_amx @llvm.x86.tileloadd64.internal(i16 8, i16 64, ptr %v112, i64 64)
  %v114 = call float asm sideeffect "vxorps $0, $0, $0\0A\09vaddss $0, $0, $0", "=x"()
  %v115 = call x86_amx @llvm.x86.tdpbf16ps.internal(i16 9, i16 64, i16 32, x86_amx %v110, x86_amx %v111, x86_amx %v113)
  call void @llvm.x86.tilestored64.internal(i16 9, i16 64, ptr %v95, i64 64, x86_amx %v115)
  br label %loop116
loop116:
  %i.score_in_row_tail.118 = phi i64 [ 0, %done97 ], [ %v131, %loop116 ]
  %v119 = mul i64 %i.score_in_row_tail.118, 64
  %v120 = getelementptr i8, ptr %v95, i64 %v119
  %v122 = mul i64 %i.score_in_row_tail.118, 80
  %v123 = getelementptr i8, ptr %v5, i64 %v122
  %v127 = mul i64 %i.score_in_row_tail.118, 192
  %v128 = getelementptr i8, ptr %v89, i64 %v127
  %v121 = load <4 x float>, ptr %v120, align 4
  %v124 = getelementptr i8, ptr %v123, i64 64
  %v125 = load <4 x float>, ptr %v124, align 4
  %v126 = fadd contract <4 x float> %v121, %v125
  %v129 = getelementptr i8, ptr %v128, i64 64
  store <4 x float> %v126, ptr %v129, align 4
  %v130 = getelementptr i8, ptr %v128, i64 80
  call void @llvm.masked.store.v16f32.p0(<16 x float> splat (float 0xFFF0000000000000), ptr align 4 %v130, <16 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false, i1 false>)
  %v131 = add nuw nsw i64 %i.score_in_row_tail.118, 1
  %v132 = icmp slt i64 %v131, 9
  br i1 %v132, label %loop116, label %done117
done117:
  br label %loop134
loop134:
  %i.max_init_i0.136 = phi i64 [ 0, %done117 ], [ %v139, %loop134 ]
  %v137 = mul i64 %i.max_init_i0.136, 4
  %v138 = getelementptr i8, ptr %v133, i64 %v137
  store float 0xFFF0000000000000, ptr %v138, align 4
  %v139 = add nuw nsw i64 %i.max_init_i0.136, 1
  %v140 = icmp slt i64 %v139, 9
  br i1 %v140, label %loop134, label %done135
done135:
  br label %loop141
loop141:
  %i.max_part_max_i0.143 = phi i64 [ 0, %done135 ], [ %v173, %loop141 ]
  %v144 = mul i64 %i.max_part_max_i0.143, 192
  %v145 = getelementptr i8, ptr %v89, i64 %v144
  %v157 = mul i64 %i.max_part_max_i0.143, 4
  %v158 = getelementptr i8, ptr %v133, i64 %v157
  %v146 = load <16 x float>, ptr %v145, align 4
  %v147 = fcmp ogt <16 x float> splat (float 0xFFF0000000000000), %v146
  %v148 = select <16 x i1> %v147, <16 x float> splat (float 0xFFF0000000000000), <16 x float> %v146
  %v149 = getelementptr i8, ptr %v145, i64 64
  %v150 = load <16 x float>, ptr %v149, align 4
  %v151 = fcmp ogt <16 x float> splat (float 0xFFF0000000000000), %v150
  %v152 = select <16 x i1> %v151, <16 x float> splat (float 0xFFF0000000000000), <16 x float> %v150
  %v153 = fcmp uno <16 x float> %v148, %v148
  %v154 = call i1 @llvm.vector.reduce.or.v16i1(<16 x i1> %v153)
  %v155 = call nnan float @llvm.vector.reduce.fmax.v16f32(<16 x float> %v148)
  %v156 = select i1 %v154, float 0x7FF8000000000000, float %v155
  %v159 = load float, ptr %v158, align 4
  %v160 = fcmp ogt float %v159, %v156
  %v161 = select i1 %v160, float %v159, float %v156
  %v162 = fcmp uno float %v159, %v159
  %v163 = select i1 %v162, float %v159, float %v161
  store float %v163, ptr %v158, align 4
  %v164 = fcmp uno <16 x float> %v152, %v152
  %v165 = call i1 @llvm.vector.reduce.or.v16i1(<16 x i1> %v164)
  %v166 = call nnan float @llvm.vector.reduce.fmax.v16f32(<16 x float> %v152)
  %v167 = select i1 %v165, float 0x7FF8000000000000, float %v166
  %v168 = load float, ptr %v158, align 4
  %v169 = fcmp ogt float %v168, %v167
  %v170 = select i1 %v169, float %v168, float %v167
  %v171 = fcmp uno float %v168, %v168
  %v172 = select i1 %v171, float %v168, float %v170
  store float %v172, ptr %v158, align 4
  %v173 = add nuw nsw i64 %i.max_part_max_i0.143, 1
  %v174 = icmp slt i64 %v173, 9
  br i1 %v174, label %loop141, label %done142
done142:
  br label %loop176
loop176:
  %i.exp_i0.178 = phi i64 [ 0, %done142 ], [ %v221, %done180 ]
  %v182 = mul i64 %i.exp_i0.178, 192
  %v183 = getelementptr i8, ptr %v89, i64 %v182
  %v187 = mul i64 %i.exp_i0.178, 4
  %v188 = getelementptr i8, ptr %v133, i64 %v187
  %v215 = mul i64 %i.exp_i0.178, 64
  %v216 = getelementptr i8, ptr %v175, i64 %v215
  br label %loop179
loop179:
  %i.exp_i1_o.181 = phi i64 [ 0, %loop176 ], [ %v219, %loop179 ]
  %v184 = mul i64 %i.exp_i1_o.181, 64
  %v185 = getelementptr i8, ptr %v183, i64 %v184
  %v217 = mul i64 %i.exp_i1_o.181, 32
  %v218 = getelementptr i8, ptr %v216, i64 %v217
  %v186 = load <16 x float>, ptr %v185, align 4
  %v189 = load float, ptr %v188, align 4
  %v190 = insertelement <16 x float> poison, float %v189, i64 0
  %v191 = shufflevector <16 x float> %v190, <16 x float> poison, <16 x i32> zeroinitializer
  %v192 = fsub contract <16 x float> %v186, %v191
  %v193 = fmul <16 x float> %v192, splat (float 0x3FF7154760000000)
  %v194 = fadd <16 x float> %v193, splat (float 0x4168000000000000)
  %v195 = fsub <16 x float> %v194, splat (float 0x4168000000000000)
  %v196 = bitcast <16 x float> %v194 to <16 x i32>
  %v197 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v195, <16 x float> splat (float 0xBFE6300000000000), <16 x float> %v192)
  %v198 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v195, <16 x float> splat (float 0x3F2BD01060000000), <16 x float> %v197)
  %v199 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> splat (float 0x3F2A12A420000000), <16 x float> %v198, <16 x float> splat (float 0x3F56D49200000000))
  %v200 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v199, <16 x float> %v198, <16 x float> splat (float 0x3F81110E00000000))
  %v201 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v200, <16 x float> %v198, <16 x float> splat (float 0x3FA5554E40000000))
  %v202 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v201, <16 x float> %v198, <16 x float> splat (float 0x3FC5555560000000))
  %v203 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v202, <16 x float> %v198, <16 x float> splat (float 0x3FE0000000000000))
  %v204 = fmul <16 x float> %v198, %v198
  %v205 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v204, <16 x float> %v203, <16 x float> %v198)
  %v206 = fadd <16 x float> %v205, splat (float 0x3FF0000000000000)
  %v207 = fcmp uge <16 x float> %v192, splat (float 0xC055D58A00000000)
  %v208 = bitcast <16 x i1> %v207 to i16
  %v209 = call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float> %v206, <16 x float> %v195, <16 x float> zeroinitializer, i16 %v208, i32 4)
  %v210 = fptrunc <16 x float> %v209 to <16 x bfloat>
  %v211 = bitcast <16 x bfloat> %v210 to <16 x i16>
  %v212 = zext <16 x i16> %v211 to <16 x i32>
  %v213 = shl <16 x i32> %v212, splat (i32 16)
  %v214 = bitcast <16 x i32> %v213 to <16 x float>
  store <16 x i16> %v211, ptr %v218, align 2
  %v219 = add nuw nsw i64 %i.exp_i1_o.181, 1
  %v220 = icmp slt i64 %v219, 2
  br i1 %v220, label %loop179, label %done180
done180:
  %v221 = add nuw nsw i64 %i.exp_i0.178, 1
  %v222 = icmp slt i64 %v221, 9
  br i1 %v222, label %loop176, label %done177
done177:
  br label %loop224
loop224:
  %i.sum_init_i0.226 = phi i64 [ 0, %done177 ], [ %v229, %loop224 ]
  %v227 = mul i64 %i.sum_init_i0.226, 4
  %v228 = getelementptr i8, ptr %v223, i64 %v227
  store float 0x0000000000000000, ptr %v228, align 4
  %v229 = add nuw nsw i64 %i.sum_init_i0.226, 1
  %v230 = icmp slt i64 %v229, 9
  br i1 %v230, label %loop224, label %done225
done225:
  br label %loop231
loop231:
  %i.sum_part_sum_i0.233 = phi i64 [ 0, %done225 ], [ %v255, %loop231 ]
  %v234 = mul i64 %i.sum_part_sum_i0.233, 64
  %v235 = getelementptr i8, ptr %v175, i64 %v234
  %v248 = mul i64 %i.sum_part_sum_i0.233, 4
  %v249 = getelementptr i8, ptr %v223, i64 %v248
  %v236 = load <16 x i16>, ptr %v235, align 2
  %v237 = zext <16 x i16> %v236 to <16 x i32>
  %v238 = shl <16 x i32> %v237, splat (i32 16)
  %v239 = bitcast <16 x i32> %v238 to <16 x float>
  %v240 = fadd contract <16 x float> splat (float 0x0000000000000000), %v239
  %v241 = getelementptr i8, ptr %v235, i64 32
  %v242 = load <16 x i16>, ptr %v241, align 2
  %v243 = zext <16 x i16> %v242 to <16 x i32>
  %v244 = shl <16 x i32> %v243, splat (i32 16)
  %v245 = bitcast <16 x i32> %v244 to <16 x float>
  %v246 = fadd contract <16 x float> splat (float 0x0000000000000000), %v245
  %v247 = call reassoc float @llvm.vector.reduce.fadd.v16f32(float 0x8000000000000000, <16 x float> %v240)
  %v250 = load float, ptr %v249, align 4
  %v251 = fadd contract float %v250, %v247
  store float %v251, ptr %v249, align 4
  %v252 = call reassoc float @llvm.vector.reduce.fadd.v16f32(float 0x8000000000000000, <16 x float> %v246)
  %v253 = load float, ptr %v249, align 4
  %v254 = fadd contract float %v253, %v252
  store float %v254, ptr %v249, align 4
  %v255 = add nuw nsw i64 %i.sum_part_sum_i0.233, 1
  %v256 = icmp slt i64 %v255, 9
  br i1 %v256, label %loop231, label %done232
done232:
  %v258 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr align 4 %v223, <16 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false>, <16 x float> zeroinitializer)
  %v259 = fdiv <16 x float> splat (float 0x3FF0000000000000), %v258
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v259, ptr align 4 %v257, <16 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false>)
  %v260 = call x86_amx @llvm.x86.tilezero.internal(i16 9, i16 64)
  %v261 = call x86_amx @llvm.x86.tileloadd64.internal(i16 9, i16 64, ptr %v175, i64 64)
  %v262 = call x86_amx @llvm.x86.tileloadd64.internal(i16 16, i16 64, ptr %v10, i64 64)
  %v263 = call float asm sideeffect "vxorps $0, $0, $0\0A\09vaddss $0, $0, $0", "=x"()
  %v264 = call x86_amx @llvm.x86.tdpbf16ps.internal(i16 9, i16 64, i16 64, x86_amx %v260, x86_amx %v261, x86_amx %v262)
  call void @llvm.x86.tilestored64.internal(i16 9, i16 64, ptr %v265, i64 64, x86_amx %v264)
  br label %loop266
loop266:
  %i.in_row.268 = phi i64 [ 0, %done232 ], [ %v279, %loop266 ]
  %v269 = mul i64 %i.in_row.268, 64
  %v270 = getelementptr i8, ptr %v265, i64 %v269
  %v272 = mul i64 %i.in_row.268, 4
  %v273 = getelementptr i8, ptr %v257, i64 %v272
  %v278 = getelementptr i8, ptr %v9, i64 %v269
  %v271 = load <16 x float>, ptr %v270, align 4
  %v274 = load float, ptr %v273, align 4
  %v275 = insertelement <16 x float> poison, float %v274, i64 0
  %v276 = shufflevector <16 x float> %v275, <16 x float> poison, <16 x i32> zeroinitializer
  %v277 = fmul contract <16 x float> %v271, %v276
  store <16 x float> %v277, ptr %v278, align 4
  %v279 = add nuw nsw i64 %i.in_row.268, 1
  %v280 = icmp slt i64 %v279, 9
  br i1 %v280, label %loop266, label %done267
done267:
  ret i32 0
}
declare <16 x float> @llvm.fmuladd.v16f32(<16 x float>, <16 x float>, <16 x float>)
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, <16 x i1>, <16 x float>)
declare <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float>, <16 x float>, <16 x float>, i16, i32)
declare float @llvm.vector.reduce.fadd.v16f32(float, <16 x float>)
declare float @llvm.vector.reduce.fmax.v16f32(<16 x float>)
declare i1 @llvm.vector.reduce.or.v16i1(<16 x i1>)
declare void @llvm.masked.store.v16f32.p0(<16 x float>, ptr, <16 x i1>)
declare void @llvm.masked.store.v16i32.p0(<16 x i32>, ptr, <16 x i1>)
declare void @llvm.x86.tilestored64.internal(i16, i16, ptr, i64, x86_amx)
declare x86_amx @llvm.x86.tdpbf16ps.internal(i16, i16, i16, x86_amx, x86_amx, x86_amx)
declare x86_amx @llvm.x86.tileloadd64.internal(i16, i16, ptr, i64)
declare x86_amx @llvm.x86.tilezero.internal(i16, i16)
