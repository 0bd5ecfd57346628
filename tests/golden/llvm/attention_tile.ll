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
  %v230 = alloca [576 x i8], align 64 ; exp
  %v278 = alloca [64 x i8], align 64 ; sum
  %v373 = alloca [64 x i8], align 64 ; share
  %v381 = alloca [576 x i8], align 64 ; matmul_1_sum
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
  %i.max_part_max_i0.143 = phi i64 [ 0, %done135 ], [ %v228, %loop141 ]
  %v144 = mul i64 %i.max_part_max_i0.143, 192
  %v145 = getelementptr i8, ptr %v89, i64 %v144
  %v221 = mul i64 %i.max_part_max_i0.143, 4
  %v222 = getelementptr i8, ptr %v133, i64 %v221
  %v146 = load <16 x float>, ptr %v145, align 4
  %v147 = fcmp ogt <16 x float> splat (float 0xFFF0000000000000), %v146
  %v148 = select <16 x i1> %v147, <16 x float> splat (float 0xFFF0000000000000), <16 x float> %v146
  %v149 = getelementptr i8, ptr %v145, i64 64
  %v150 = load <16 x float>, ptr %v149, align 4
  %v151 = fcmp ogt <16 x float> splat (float 0xFFF0000000000000), %v150
  %v152 = select <16 x i1> %v151, <16 x float> splat (float 0xFFF0000000000000), <16 x float> %v150
  %v153 = extractelement <16 x float> %v148, i64 0
  %v154 = insertelement <32 x float> poison, float %v153, i64 0
  %v155 = extractelement <16 x float> %v148, i64 1
  %v156 = insertelement <32 x float> %v154, float %v155, i64 1
  %v157 = extractelement <16 x float> %v148, i64 2
  %v158 = insertelement <32 x float> %v156, float %v157, i64 2
  %v159 = extractelement <16 x float> %v148, i64 3
  %v160 = insertelement <32 x float> %v158, float %v159, i64 3
  %v161 = extractelement <16 x float> %v148, i64 4
  %v162 = insertelement <32 x float> %v160, float %v161, i64 4
  %v163 = extractelement <16 x float> %v148, i64 5
  %v164 = insertelement <32 x float> %v162, float %v163, i64 5
  %v165 = extractelement <16 x float> %v148, i64 6
  %v166 = insertelement <32 x float> %v164, float %v165, i64 6
  %v167 = extractelement <16 x float> %v148, i64 7
  %v168 = insertelement <32 x float> %v166, float %v167, i64 7
  %v169 = extractelement <16 x float> %v148, i64 8
  %v170 = insertelement <32 x float> %v168, float %v169, i64 8
  %v171 = extractelement <16 x float> %v148, i64 9
  %v172 = insertelement <32 x float> %v170, float %v171, i64 9
  %v173 = extractelement <16 x float> %v148, i64 10
  %v174 = insertelement <32 x float> %v172, float %v173, i64 10
  %v175 = extractelement <16 x float> %v148, i64 11
  %v176 = insertelement <32 x float> %v174, float %v175, i64 11
  %v177 = extractelement <16 x float> %v148, i64 12
  %v178 = insertelement <32 x float> %v176, float %v177, i64 12
  %v179 = extractelement <16 x float> %v148, i64 13
  %v180 = insertelement <32 x float> %v178, float %v179, i64 13
  %v181 = extractelement <16 x float> %v148, i64 14
  %v182 = insertelement <32 x float> %v180, float %v181, i64 14
  %v183 = extractelement <16 x float> %v148, i64 15
  %v184 = insertelement <32 x float> %v182, float %v183, i64 15
  %v185 = extractelement <16 x float> %v152, i64 0
  %v186 = insertelement <32 x float> %v184, float %v185, i64 16
  %v187 = extractelement <16 x float> %v152, i64 1
  %v188 = insertelement <32 x float> %v186, float %v187, i64 17
  %v189 = extractelement <16 x float> %v152, i64 2
  %v190 = insertelement <32 x float> %v188, float %v189, i64 18
  %v191 = extractelement <16 x float> %v152, i64 3
  %v192 = insertelement <32 x float> %v190, float %v191, i64 19
  %v193 = extractelement <16 x float> %v152, i64 4
  %v194 = insertelement <32 x float> %v192, float %v193, i64 20
  %v195 = extractelement <16 x float> %v152, i64 5
  %v196 = insertelement <32 x float> %v194, float %v195, i64 21
  %v197 = extractelement <16 x float> %v152, i64 6
  %v198 = insertelement <32 x float> %v196, float %v197, i64 22
  %v199 = extractelement <16 x float> %v152, i64 7
  %v200 = insertelement <32 x float> %v198, float %v199, i64 23
  %v201 = extractelement <16 x float> %v152, i64 8
  %v202 = insertelement <32 x float> %v200, float %v201, i64 24
  %v203 = extractelement <16 x float> %v152, i64 9
  %v204 = insertelement <32 x float> %v202, float %v203, i64 25
  %v205 = extractelement <16 x float> %v152, i64 10
  %v206 = insertelement <32 x float> %v204, float %v205, i64 26
  %v207 = extractelement <16 x float> %v152, i64 11
  %v208 = insertelement <32 x float> %v206, float %v207, i64 27
  %v209 = extractelement <16 x float> %v152, i64 12
  %v210 = insertelement <32 x float> %v208, float %v209, i64 28
  %v211 = extractelement <16 x float> %v152, i64 13
  %v212 = insertelement <32 x float> %v210, float %v211, i64 29
  %v213 = extractelement <16 x float> %v152, i64 14
  %v214 = insertelement <32 x float> %v212, float %v213, i64 30
  %v215 = extractelement <16 x float> %v152, i64 15
  %v216 = insertelement <32 x float> %v214, float %v215, i64 31
  %v217 = fcmp uno <32 x float> %v216, %v216
  %v218 = call i1 @llvm.vector.reduce.or.v32i1(<32 x i1> %v217)
  %v219 = call nnan float @llvm.vector.reduce.fmax.v32f32(<32 x float> %v216)
  %v220 = select i1 %v218, float 0x7FF8000000000000, float %v219
  %v223 = load float, ptr %v222, align 4
  %v224 = fcmp ogt float %v223, %v220
  %v225 = select i1 %v224, float %v223, float %v220
  %v226 = fcmp uno float %v223, %v223
  %v227 = select i1 %v226, float %v223, float %v225
  store float %v227, ptr %v222, align 4
  %v228 = add nuw nsw i64 %i.max_part_max_i0.143, 1
  %v229 = icmp slt i64 %v228, 9
  br i1 %v229, label %loop141, label %done142
done142:
  br label %loop231
loop231:
  %i.exp_i0.233 = phi i64 [ 0, %done142 ], [ %v276, %done235 ]
  %v237 = mul i64 %i.exp_i0.233, 192
  %v238 = getelementptr i8, ptr %v89, i64 %v237
  %v242 = mul i64 %i.exp_i0.233, 4
  %v243 = getelementptr i8, ptr %v133, i64 %v242
  %v270 = mul i64 %i.exp_i0.233, 64
  %v271 = getelementptr i8, ptr %v230, i64 %v270
  br label %loop234
loop234:
  %i.exp_i1_o.236 = phi i64 [ 0, %loop231 ], [ %v274, %loop234 ]
  %v239 = mul i64 %i.exp_i1_o.236, 64
  %v240 = getelementptr i8, ptr %v238, i64 %v239
  %v272 = mul i64 %i.exp_i1_o.236, 32
  %v273 = getelementptr i8, ptr %v271, i64 %v272
  %v241 = load <16 x float>, ptr %v240, align 4
  %v244 = load float, ptr %v243, align 4
  %v245 = insertelement <16 x float> poison, float %v244, i64 0
  %v246 = shufflevector <16 x float> %v245, <16 x float> poison, <16 x i32> zeroinitializer
  %v247 = fsub contract <16 x float> %v241, %v246
  %v248 = fmul <16 x float> %v247, splat (float 0x3FF7154760000000)
  %v249 = fadd <16 x float> %v248, splat (float 0x4168000000000000)
  %v250 = fsub <16 x float> %v249, splat (float 0x4168000000000000)
  %v251 = bitcast <16 x float> %v249 to <16 x i32>
  %v252 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v250, <16 x float> splat (float 0xBFE6300000000000), <16 x float> %v247)
  %v253 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v250, <16 x float> splat (float 0x3F2BD01060000000), <16 x float> %v252)
  %v254 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> splat (float 0x3F2A12A420000000), <16 x float> %v253, <16 x float> splat (float 0x3F56D49200000000))
  %v255 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v254, <16 x float> %v253, <16 x float> splat (float 0x3F81110E00000000))
  %v256 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v255, <16 x float> %v253, <16 x float> splat (float 0x3FA5554E40000000))
  %v257 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v256, <16 x float> %v253, <16 x float> splat (float 0x3FC5555560000000))
  %v258 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v257, <16 x float> %v253, <16 x float> splat (float 0x3FE0000000000000))
  %v259 = fmul <16 x float> %v253, %v253
  %v260 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v259, <16 x float> %v258, <16 x float> %v253)
  %v261 = fadd <16 x float> %v260, splat (float 0x3FF0000000000000)
  %v262 = fcmp uge <16 x float> %v247, splat (float 0xC055D58A00000000)
  %v263 = bitcast <16 x i1> %v262 to i16
  %v264 = call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float> %v261, <16 x float> %v250, <16 x float> zeroinitializer, i16 %v263, i32 4)
  %v265 = fptrunc <16 x float> %v264 to <16 x bfloat>
  %v266 = bitcast <16 x bfloat> %v265 to <16 x i16>
  %v267 = zext <16 x i16> %v266 to <16 x i32>
  %v268 = shl <16 x i32> %v267, splat (i32 16)
  %v269 = bitcast <16 x i32> %v268 to <16 x float>
  store <16 x i16> %v266, ptr %v273, align 2
  %v274 = add nuw nsw i64 %i.exp_i1_o.236, 1
  %v275 = icmp slt i64 %v274, 2
  br i1 %v275, label %loop234, label %done235
done235:
  %v276 = add nuw nsw i64 %i.exp_i0.233, 1
  %v277 = icmp slt i64 %v276, 9
  br i1 %v277, label %loop231, label %done232
done232:
  br label %loop279
loop279:
  %i.sum_init_i0.281 = phi i64 [ 0, %done232 ], [ %v284, %loop279 ]
  %v282 = mul i64 %i.sum_init_i0.281, 4
  %v283 = getelementptr i8, ptr %v278, i64 %v282
  store float 0x0000000000000000, ptr %v283, align 4
  %v284 = add nuw nsw i64 %i.sum_init_i0.281, 1
  %v285 = icmp slt i64 %v284, 9
  br i1 %v285, label %loop279, label %done280
done280:
  br label %loop286
loop286:
  %i.sum_part_sum_i0.288 = phi i64 [ 0, %done280 ], [ %v371, %loop286 ]
  %v289 = mul i64 %i.sum_part_sum_i0.288, 64
  %v290 = getelementptr i8, ptr %v230, i64 %v289
  %v367 = mul i64 %i.sum_part_sum_i0.288, 4
  %v368 = getelementptr i8, ptr %v278, i64 %v367
  %v291 = load <16 x i16>, ptr %v290, align 2
  %v292 = zext <16 x i16> %v291 to <16 x i32>
  %v293 = shl <16 x i32> %v292, splat (i32 16)
  %v294 = bitcast <16 x i32> %v293 to <16 x float>
  %v295 = fadd contract <16 x float> splat (float 0x0000000000000000), %v294
  %v296 = getelementptr i8, ptr %v290, i64 32
  %v297 = load <16 x i16>, ptr %v296, align 2
  %v298 = zext <16 x i16> %v297 to <16 x i32>
  %v299 = shl <16 x i32> %v298, splat (i32 16)
  %v300 = bitcast <16 x i32> %v299 to <16 x float>
  %v301 = fadd contract <16 x float> splat (float 0x0000000000000000), %v300
  %v302 = extractelement <16 x float> %v295, i64 0
  %v303 = insertelement <32 x float> poison, float %v302, i64 0
  %v304 = extractelement <16 x float> %v295, i64 1
  %v305 = insertelement <32 x float> %v303, float %v304, i64 1
  %v306 = extractelement <16 x float> %v295, i64 2
  %v307 = insertelement <32 x float> %v305, float %v306, i64 2
  %v308 = extractelement <16 x float> %v295, i64 3
  %v309 = insertelement <32 x float> %v307, float %v308, i64 3
  %v310 = extractelement <16 x float> %v295, i64 4
  %v311 = insertelement <32 x float> %v309, float %v310, i64 4
  %v312 = extractelement <16 x float> %v295, i64 5
  %v313 = insertelement <32 x float> %v311, float %v312, i64 5
  %v314 = extractelement <16 x float> %v295, i64 6
  %v315 = insertelement <32 x float> %v313, float %v314, i64 6
  %v316 = extractelement <16 x float> %v295, i64 7
  %v317 = insertelement <32 x float> %v315, float %v316, i64 7
  %v318 = extractelement <16 x float> %v295, i64 8
  %v319 = insertelement <32 x float> %v317, float %v318, i64 8
  %v320 = extractelement <16 x float> %v295, i64 9
  %v321 = insertelement <32 x float> %v319, float %v320, i64 9
  %v322 = extractelement <16 x float> %v295, i64 10
  %v323 = insertelement <32 x float> %v321, float %v322, i64 10
  %v324 = extractelement <16 x float> %v295, i64 11
  %v325 = insertelement <32 x float> %v323, float %v324, i64 11
  %v326 = extractelement <16 x float> %v295, i64 12
  %v327 = insertelement <32 x float> %v325, float %v326, i64 12
  %v328 = extractelement <16 x float> %v295, i64 13
  %v329 = insertelement <32 x float> %v327, float %v328, i64 13
  %v330 = extractelement <16 x float> %v295, i64 14
  %v331 = insertelement <32 x float> %v329, float %v330, i64 14
  %v332 = extractelement <16 x float> %v295, i64 15
  %v333 = insertelement <32 x float> %v331, float %v332, i64 15
  %v334 = extractelement <16 x float> %v301, i64 0
  %v335 = insertelement <32 x float> %v333, float %v334, i64 16
  %v336 = extractelement <16 x float> %v301, i64 1
  %v337 = insertelement <32 x float> %v335, float %v336, i64 17
  %v338 = extractelement <16 x float> %v301, i64 2
  %v339 = insertelement <32 x float> %v337, float %v338, i64 18
  %v340 = extractelement <16 x float> %v301, i64 3
  %v341 = insertelement <32 x float> %v339, float %v340, i64 19
  %v342 = extractelement <16 x float> %v301, i64 4
  %v343 = insertelement <32 x float> %v341, float %v342, i64 20
  %v344 = extractelement <16 x float> %v301, i64 5
  %v345 = insertelement <32 x float> %v343, float %v344, i64 21
  %v346 = extractelement <16 x float> %v301, i64 6
  %v347 = insertelement <32 x float> %v345, float %v346, i64 22
  %v348 = extractelement <16 x float> %v301, i64 7
  %v349 = insertelement <32 x float> %v347, float %v348, i64 23
  %v350 = extractelement <16 x float> %v301, i64 8
  %v351 = insertelement <32 x float> %v349, float %v350, i64 24
  %v352 = extractelement <16 x float> %v301, i64 9
  %v353 = insertelement <32 x float> %v351, float %v352, i64 25
  %v354 = extractelement <16 x float> %v301, i64 10
  %v355 = insertelement <32 x float> %v353, float %v354, i64 26
  %v356 = extractelement <16 x float> %v301, i64 11
  %v357 = insertelement <32 x float> %v355, float %v356, i64 27
  %v358 = extractelement <16 x float> %v301, i64 12
  %v359 = insertelement <32 x float> %v357, float %v358, i64 28
  %v360 = extractelement <16 x float> %v301, i64 13
  %v361 = insertelement <32 x float> %v359, float %v360, i64 29
  %v362 = extractelement <16 x float> %v301, i64 14
  %v363 = insertelement <32 x float> %v361, float %v362, i64 30
  %v364 = extractelement <16 x float> %v301, i64 15
  %v365 = insertelement <32 x float> %v363, float %v364, i64 31
  %v366 = call reassoc float @llvm.vector.reduce.fadd.v32f32(float 0x8000000000000000, <32 x float> %v365)
  %v369 = load float, ptr %v368, align 4
  %v370 = fadd contract float %v369, %v366
  store float %v370, ptr %v368, align 4
  %v371 = add nuw nsw i64 %i.sum_part_sum_i0.288, 1
  %v372 = icmp slt i64 %v371, 9
  br i1 %v372, label %loop286, label %done287
done287:
  %v374 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr align 4 %v278, <16 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false>, <16 x float> zeroinitializer)
  %v375 = fdiv <16 x float> splat (float 0x3FF0000000000000), %v374
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v375, ptr align 4 %v373, <16 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false>)
  %v376 = call x86_amx @llvm.x86.tilezero.internal(i16 9, i16 64)
  %v377 = call x86_amx @llvm.x86.tileloadd64.internal(i16 9, i16 64, ptr %v230, i64 64)
  %v378 = call x86_amx @llvm.x86.tileloadd64.internal(i16 16, i16 64, ptr %v10, i64 64)
  %v379 = call float asm sideeffect "vxorps $0, $0, $0\0A\09vaddss $0, $0, $0", "=x"()
  %v380 = call x86_amx @llvm.x86.tdpbf16ps.internal(i16 9, i16 64, i16 64, x86_amx %v376, x86_amx %v377, x86_amx %v378)
  call void @llvm.x86.tilestored64.internal(i16 9, i16 64, ptr %v381, i64 64, x86_amx %v380)
  br label %loop382
loop382:
  %i.in_row.384 = phi i64 [ 0, %done287 ], [ %v395, %loop382 ]
  %v385 = mul i64 %i.in_row.384, 64
  %v386 = getelementptr i8, ptr %v381, i64 %v385
  %v388 = mul i64 %i.in_row.384, 4
  %v389 = getelementptr i8, ptr %v373, i64 %v388
  %v394 = getelementptr i8, ptr %v9, i64 %v385
  %v387 = load <16 x float>, ptr %v386, align 4
  %v390 = load float, ptr %v389, align 4
  %v391 = insertelement <16 x float> poison, float %v390, i64 0
  %v392 = shufflevector <16 x float> %v391, <16 x float> poison, <16 x i32> zeroinitializer
  %v393 = fmul contract <16 x float> %v387, %v392
  store <16 x float> %v393, ptr %v394, align 4
  %v395 = add nuw nsw i64 %i.in_row.384, 1
  %v396 = icmp slt i64 %v395, 9
  br i1 %v396, label %loop382, label %done383
done383:
  ret i32 0
}
declare <16 x float> @llvm.fmuladd.v16f32(<16 x float>, <16 x float>, <16 x float>)
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, <16 x i1>, <16 x float>)
declare <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float>, <16 x float>, <16 x float>, i16, i32)
declare float @llvm.vector.reduce.fadd.v32f32(float, <32 x float>)
declare float @llvm.vector.reduce.fmax.v32f32(<32 x float>)
declare i1 @llvm.vector.reduce.or.v32i1(<32 x i1>)
declare void @llvm.masked.store.v16f32.p0(<16 x float>, ptr, <16 x i1>)
declare void @llvm.masked.store.v16i32.p0(<16 x i32>, ptr, <16 x i1>)
declare void @llvm.x86.tilestored64.internal(i16, i16, ptr, i64, x86_amx)
declare x86_amx @llvm.x86.tdpbf16ps.internal(i16, i16, i16, x86_amx, x86_amx, x86_amx)
declare x86_amx @llvm.x86.tileloadd64.internal(i16, i16, ptr, i64)
declare x86_amx @llvm.x86.tilezero.internal(i16, i16)
