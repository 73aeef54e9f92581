BEGIN TRANSACTION;
CREATE TABLE benchmark (
	id INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	environment_id INTEGER NOT NULL, 
	created_at DATETIME NOT NULL, 
	results JSON NOT NULL, 
	write_token VARCHAR, 
	CONSTRAINT pk_benchmark PRIMARY KEY (id), 
	CONSTRAINT fk_benchmark_environment_id_environment FOREIGN KEY(environment_id) REFERENCES environment (id)
);
CREATE TABLE environment (
	id INTEGER NOT NULL, 
	digest VARCHAR NOT NULL, 
	facts JSON NOT NULL, 
	CONSTRAINT pk_environment PRIMARY KEY (id), 
	CONSTRAINT uq_environment_digest UNIQUE (digest)
);
INSERT INTO "environment" VALUES(1,'e73ab240df26df08','{"python": "3", "packages": {"torch": "2"}, "cpu": "a CPU"}');
CREATE TABLE metric (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	series_id INTEGER NOT NULL, 
	epoch INTEGER NOT NULL, 
	iteration INTEGER NOT NULL, 
	value FLOAT, 
	kind VARCHAR, 
	CONSTRAINT pk_metric PRIMARY KEY (id), 
	CONSTRAINT fk_metric_run_id_run FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE, 
	CONSTRAINT fk_metric_series_id_series FOREIGN KEY(series_id) REFERENCES series (id) ON DELETE CASCADE, 
	CONSTRAINT uq_metric_run_id UNIQUE (run_id, series_id, iteration)
);
INSERT INTO "metric" VALUES(1,1,1,0,0,0.5,NULL);
INSERT INTO "metric" VALUES(2,1,1,1,5,0.375,NULL);
INSERT INTO "metric" VALUES(3,1,1,2,10,0.25,NULL);
INSERT INTO "metric" VALUES(4,2,1,0,0,0.5,NULL);
INSERT INTO "metric" VALUES(5,2,1,1,5,0.375,NULL);
INSERT INTO "metric" VALUES(6,2,1,2,10,0.25,NULL);
INSERT INTO "metric" VALUES(7,3,1,0,0,0.5,NULL);
INSERT INTO "metric" VALUES(8,3,1,1,5,0.375,NULL);
INSERT INTO "metric" VALUES(9,3,1,2,10,0.25,NULL);
INSERT INTO "metric" VALUES(10,4,1,0,0,0.5,NULL);
INSERT INTO "metric" VALUES(11,4,1,1,5,0.375,NULL);
INSERT INTO "metric" VALUES(12,4,1,2,10,0.25,NULL);
CREATE TABLE orthobench_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT orthobench_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "orthobench_version" VALUES('0103');
CREATE TABLE run (
	id INTEGER NOT NULL, 
	"key" VARCHAR NOT NULL, 
	variant VARCHAR NOT NULL, 
	condition VARCHAR NOT NULL, 
	task VARCHAR NOT NULL, 
	model VARCHAR NOT NULL, 
	seed INTEGER NOT NULL, 
	preset VARCHAR, 
	spec JSON NOT NULL, 
	status VARCHAR NOT NULL, 
	message VARCHAR, 
	environment_id INTEGER NOT NULL, 
	device VARCHAR NOT NULL, 
	backend VARCHAR, 
	parameter_count INTEGER NOT NULL, 
	metric VARCHAR NOT NULL, 
	goal VARCHAR NOT NULL, 
	metrics JSON, 
	baselines JSON NOT NULL, 
	iterations INTEGER NOT NULL, 
	total_iterations INTEGER NOT NULL, 
	iterations_per_epoch INTEGER NOT NULL, 
	final_value FLOAT, 
	best_value FLOAT, 
	best_iteration INTEGER, 
	seconds JSON NOT NULL, 
	peak_memory INTEGER, 
	created_at DATETIME NOT NULL, 
	updated_at DATETIME NOT NULL, 
	write_token VARCHAR, 
	continued_from VARCHAR, 
	CONSTRAINT pk_run PRIMARY KEY (id), 
	CONSTRAINT fk_run_environment_id_environment FOREIGN KEY(environment_id) REFERENCES environment (id), 
	CONSTRAINT uq_run_key UNIQUE ("key")
);
INSERT INTO "run" VALUES(1,'96d5662931f1980a','31d178e67deab4c8','3c43b76effea09d8','mnist','rnn',0,'quick','{"task": "mnist", "model": "rnn", "seed": 0, "task_settings": {"sequence_length": 10}, "model_settings": {"hidden_size": 4}, "training": {}, "task_version": "1", "model_version": "1"}','finished',NULL,1,'cpu','reference',3,'mse','min','{"mse": {"goal": "min", "label": "MSE", "is_graded": true}, "other": {"goal": "max"}}','{"mse": 0.5}',10,10,5,0.25,0.25,10,'{"train": 1.5}',NULL,'2026-11-29 04:11:11.223891','2026-11-29 04:11:11.257367','66a7e986ac75421b8144445084a50f13',NULL);
INSERT INTO "run" VALUES(2,'ad2bd416046a001c','6345cfc1b200554e','1c75a193bbe0b560','regression:sensors','rnn',0,'quick','{"task": "regression:sensors", "model": "rnn", "seed": 0, "task_settings": {"sequence_length": 10}, "model_settings": {"hidden_size": 4}, "training": {}, "task_version": "1", "model_version": "1"}','finished',NULL,1,'cpu','reference',3,'mse','min','{"mse": {"goal": "min", "label": "MSE", "is_graded": true}, "other": {"goal": "max"}}','{"mse": 0.5}',10,10,5,0.25,0.25,10,'{"train": 1.5}',NULL,'2026-11-29 04:11:11.281322','2026-11-29 04:11:11.299998','f1ef4baaa04e4b79b983be36dd18e071',NULL);
INSERT INTO "run" VALUES(3,'2c10332138b1bb93','6a2eb8eae94bd0b8','c40a656843d36028','adding','rnn',0,'quick','{"task": "adding", "model": "rnn", "seed": 0, "task_settings": {"sequence_length": 10}, "model_settings": {"hidden_size": 4}, "training": {}, "task_version": "1", "model_version": "1"}','finished',NULL,1,'cpu','reference',3,'mse','min','{"mse": {"goal": "min", "label": "MSE"}, "other": {"goal": "max"}}','{"mse": 0.5}',10,10,5,0.25,0.25,10,'{"train": 1.5}',NULL,'2026-11-29 04:11:11.317757','2026-11-29 04:11:11.337248','21cdab62fb3744ce82002bd0eb615698',NULL);
INSERT INTO "run" VALUES(4,'1ba84717cacffce4','7823b285296752f6','d81ab04c31250ef0','mnist_like','rnn',0,'quick','{"task": "mnist_like", "model": "rnn", "seed": 0, "task_settings": {"sequence_length": 10}, "model_settings": {"hidden_size": 4}, "training": {}, "task_version": "1", "model_version": "1"}','finished',NULL,1,'cpu','reference',3,'mse','min','{"mse": {"goal": "min", "label": "MSE"}, "other": {"goal": "max"}}','{"mse": 0.5}',10,10,5,0.25,0.25,10,'{"train": 1.5}',NULL,'2026-11-29 04:11:11.350129','2026-11-29 04:11:11.371623','774619f63166429d88a66f9f321ee2cd',NULL);
CREATE TABLE segment (
	run_id INTEGER NOT NULL, 
	iteration INTEGER NOT NULL, 
	environment_id INTEGER NOT NULL, 
	backend VARCHAR, 
	write_token VARCHAR, 
	started_at DATETIME NOT NULL, 
	CONSTRAINT pk_segment PRIMARY KEY (run_id, iteration), 
	CONSTRAINT fk_segment_environment_id_environment FOREIGN KEY(environment_id) REFERENCES environment (id), 
	CONSTRAINT fk_segment_run_id_run FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);
CREATE TABLE series (
	id INTEGER NOT NULL, 
	split VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	CONSTRAINT pk_series PRIMARY KEY (id), 
	CONSTRAINT uq_series_split UNIQUE (split, name)
);
INSERT INTO "series" VALUES(1,'test','mse');
CREATE TABLE source (
	id INTEGER NOT NULL, 
	digest VARCHAR NOT NULL, 
	content BLOB NOT NULL, 
	CONSTRAINT pk_source PRIMARY KEY (id), 
	CONSTRAINT uq_source_digest UNIQUE (digest)
);
CREATE TABLE tag (
	run_id INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	CONSTRAINT pk_tag PRIMARY KEY (run_id, name), 
	CONSTRAINT fk_tag_run_id_run FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);
INSERT INTO "tag" VALUES(1,'old');
INSERT INTO "tag" VALUES(2,'old');
INSERT INTO "tag" VALUES(3,'old');
INSERT INTO "tag" VALUES(4,'old');
CREATE TABLE trace (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	epoch INTEGER NOT NULL, 
	iteration INTEGER NOT NULL, 
	vectors BLOB NOT NULL, 
	CONSTRAINT pk_trace PRIMARY KEY (id), 
	CONSTRAINT fk_trace_run_id_run FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);
INSERT INTO "trace" VALUES(1,1,0,0,X'7B226772616469656E745F6E6F726D2F68223A342C226772616469656E745F6E6F726D2F63223A317D0A0000C03F0000807F0000C07F010000000000E04078F9E7CE8580C26EB3117E8D26B55C00D9FF677038F01720868603071C7A0002C7CB19C0C0E45900AC2E1BEE');
INSERT INTO "trace" VALUES(2,2,0,0,X'7B226772616469656E745F6E6F726D2F68223A342C226772616469656E745F6E6F726D2F63223A317D0A0000C03F0000807F0000C07F010000000000E04078F9E7CE8580C26EB3117E8D26B55C00D9FF677038F01720868603071C7A0002C7CB19C0C0E45900AC2E1BEE');
INSERT INTO "trace" VALUES(3,3,0,0,X'7B226772616469656E745F6E6F726D2F68223A342C226772616469656E745F6E6F726D2F63223A317D0A0000C03F0000807F0000C07F010000000000E04078F9E7CE8580C26EB3117E8D26B55C00D9FF677038F01720868603071C7A0002C7CB19C0C0E45900AC2E1BEE');
INSERT INTO "trace" VALUES(4,4,0,0,X'7B226772616469656E745F6E6F726D2F68223A342C226772616469656E745F6E6F726D2F63223A317D0A0000C03F0000807F0000C07F010000000000E04078F9E7CE8580C26EB3117E8D26B55C00D9FF677038F01720868603071C7A0002C7CB19C0C0E45900AC2E1BEE');
CREATE TABLE weights (
	run_id INTEGER NOT NULL, 
	kind VARCHAR NOT NULL, 
	iteration INTEGER NOT NULL, 
	path VARCHAR NOT NULL, 
	sha256 VARCHAR NOT NULL, 
	bytes INTEGER NOT NULL, 
	CONSTRAINT pk_weights PRIMARY KEY (run_id, kind), 
	CONSTRAINT fk_weights_run_id_run FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);
CREATE INDEX ix_benchmark_name ON benchmark (name);
CREATE INDEX ix_run_condition ON run (condition);
CREATE INDEX ix_run_model ON run (model);
CREATE INDEX ix_run_task ON run (task);
CREATE INDEX ix_run_variant ON run (variant);
CREATE INDEX ix_tag_name ON tag (name);
CREATE INDEX ix_trace_run_id ON trace (run_id, iteration);
CREATE VIEW runs_flat AS 
SELECT
    run.key AS run, run.task, run.model, run.seed, run.preset, run.status, json_patch(json_patch(json_extract(run.spec, '$.task_settings'), json_extract(run.spec, '$.model_settings')), json_extract(run.spec, '$.training')) AS settings, (SELECT group_concat(name, ', ') FROM (SELECT name FROM tag WHERE run_id = run.id ORDER BY name)) AS tags,
    run.metric, run.goal, run.final_value, run.best_value, run.best_iteration, (SELECT value FROM json_each(run.baselines) WHERE key = run.metric) AS baseline,
    run.iterations, run.total_iterations, run.iterations_per_epoch, run.parameter_count, json_extract(run.seconds, '$.train')
    AS train_seconds, run.peak_memory, run.device, run.backend, coalesce(json_extract(environment.facts, '$.accelerator'), json_extract(environment.facts, '$.cpu')) AS machine, json_extract(environment.facts, '$.packages.orthobench') AS version,
    json_extract(environment.facts, '$.commit') AS git_commit,
    run.variant, run.condition, run.created_at, run.updated_at
FROM run JOIN environment ON environment.id = run.environment_id;
CREATE VIEW metrics_flat AS 
SELECT
    run.key AS run, run.task, run.model, run.seed, series.split, series.name, metric.epoch, metric.iteration,
    metric.value, metric.kind
FROM metric JOIN run ON run.id = metric.run_id JOIN series ON series.id = metric.series_id;
CREATE VIEW gradient_norms AS 
SELECT
    run.key AS run, run.task, run.model, run.seed, trace.epoch, trace.iteration,
    substr(vector.key, 15) AS state, bits.key AS step,
    CASE WHEN (bits.value >> 23 & 255) < 255 THEN (1.0 - 2 * (bits.value >> 31)) * ((bits.value & 0x7FFFFF) + ((bits.value >> 23 & 255) > 0) * 0x800000) * ((1 << (bits.value >> 23 & 255) / 5) / 1073741824.0) * ((1 << (bits.value >> 23 & 255) / 5) / 1073741824.0) * ((1 << (bits.value >> 23 & 255) / 5) / 1073741824.0) * ((1 << (bits.value >> 23 & 255) / 5) / 1073741824.0) * ((1 << (bits.value >> 23 & 255) / 5) / 1073741824.0) * (1 << max((bits.value >> 23 & 255), 1) % 5) END AS value,
    CASE WHEN (bits.value >> 23 & 255) < 255 THEN NULL WHEN (bits.value & 0x7FFFFF) > 0 THEN 'nan' WHEN bits.value >> 31 THEN '-inf' ELSE 'inf' END
    AS kind
FROM trace JOIN run ON run.id = trace.run_id, json_each(CAST(substr(vectors, 1, instr(vectors, x'0A')) AS TEXT)) AS vector, json_each((
    WITH RECURSIVE part(first, digits) AS (
        SELECT 0, hex(substr(vectors, instr(vectors, x'0A') + 1 + 4 * CAST((SELECT total(value) FROM json_each(CAST(substr(vectors, 1, instr(vectors, x'0A')) AS TEXT)) WHERE id < vector.id) AS INTEGER), 4 * vector.value))
        UNION ALL
        SELECT first + (length(digits) / 16 * 8) * side, substr(digits, 1 + (length(digits) / 16 * 8) * side, (length(digits) / 16 * 8) + length(digits) * side)
        FROM part, (SELECT 0 AS side UNION ALL SELECT 1) WHERE (length(digits) / 16 * 8) > 0
    )
    SELECT json_group_array((instr('0123456789ABCDEF', substr(digits, 1, 1)) - 1 << 4) + (instr('0123456789ABCDEF', substr(digits, 2, 1)) - 1 << 0) + (instr('0123456789ABCDEF', substr(digits, 3, 1)) - 1 << 12) + (instr('0123456789ABCDEF', substr(digits, 4, 1)) - 1 << 8) + (instr('0123456789ABCDEF', substr(digits, 5, 1)) - 1 << 20) + (instr('0123456789ABCDEF', substr(digits, 6, 1)) - 1 << 16) + (instr('0123456789ABCDEF', substr(digits, 7, 1)) - 1 << 28) + (instr('0123456789ABCDEF', substr(digits, 8, 1)) - 1 << 24))
    FROM (SELECT digits FROM part WHERE length(digits) = 8 ORDER BY first)
)) AS bits;
COMMIT;
